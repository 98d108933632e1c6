// SPDX-License-Identifier: Apache-2.0

// Package version tells which build of Jackfield a binary is.
//
// Its invariant: what it says is taken from the binary itself, never guessed.
package version

import (
	"runtime/debug"
	"strings"
)

// release is set by the linker (-X) when a release is built.
var release string

// String is the version in one line: the release or module version, the commit
// when the build knows it, and the Go version.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return first(release, "unknown")
	}
	v := first(release, strings.TrimPrefix(info.Main.Version, "(devel)"), "devel")
	var commit, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	if len(commit) > 12 {
		commit = commit[:12]
	}
	if commit != "" {
		v += " (" + commit + dirty + ")"
	}
	return v + " " + info.GoVersion
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
