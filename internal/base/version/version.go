// SPDX-License-Identifier: Apache-2.0

// Package version reports which build of Jackfield a binary is.
//
// Its invariant: everything it reports is part of the binary, never guessed.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// The linker sets these (-X) in a release build, so that they do not depend on how the source was
// fetched.
var release, commit, date string

// Build is the build of a binary.
type Build struct {
	// Version is the release or module version without "v", or "devel".
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // if the build has it
	Date    string `json:"date,omitempty"`   // commit date in RFC 3339
	// Modified is set if the build has uncommitted changes.
	Modified  bool   `json:"modified,omitempty"`
	GoVersion string `json:"goVersion"`
}

// Get returns the build of this binary.
func Get() Build {
	b := Build{Version: cmp.Or(release, "devel"), Commit: commit, Date: date, GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(release, releaseName(info.Main.Version), "devel")
	if commit != "" {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// releaseName returns a module version without the "v", like the version of a release, or "".
func releaseName(moduleVersion string) string {
	return strings.TrimPrefix(strings.TrimPrefix(moduleVersion, "(devel)"), "v")
}

// ShortCommit returns the beginning of the commit, with "+changes" for uncommitted changes, or ""
// if the commit is unknown.
func (b Build) ShortCommit() string {
	short := b.Commit[:min(len(b.Commit), 12)]
	if short != "" && b.Modified {
		short += "+changes"
	}
	return short
}

// String returns the build in one line: VERSION (COMMIT) GOVERSION. A pseudo-version contains the
// commit, and "+dirty" for changes, so (COMMIT) is then omitted.
func (b Build) String() string {
	short := b.ShortCommit()
	isPseudoVersion := len(b.Commit) >= 12 && strings.Contains(b.Version, "-"+b.Commit[:12])
	if short != "" && !isPseudoVersion {
		return b.Version + " (" + short + ") " + b.GoVersion
	}
	return b.Version + " " + b.GoVersion
}

// String returns this binary's build in one line.
func String() string { return Get().String() }

// Line returns the output of --version: PROGRAM VERSION (COMMIT) GOVERSION.
func Line(program string) string { return program + " " + String() }
