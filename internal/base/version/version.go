// SPDX-License-Identifier: Apache-2.0

// Package version reports which build of Jackfield a binary is.
//
// Its invariant: everything it reports is read from the binary itself, never guessed.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// The linker sets these (-X) when a release is built, so that they do not depend on how its source was fetched.
var release, commit, date string

// Build is the build of a binary.
type Build struct {
	// the release or module version without "v", "devel" where the build has neither
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // where the build knows it
	Date    string `json:"date,omitempty"`   // when the commit was made, in RFC 3339
	// Modified reports that the build has changes that are not in the commit.
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

// releaseName returns a module version without the "v", like the version of a release; "" for a build that has none.
func releaseName(moduleVersion string) string {
	return strings.TrimPrefix(strings.TrimPrefix(moduleVersion, "(devel)"), "v")
}

// ShortCommit is the beginning of the commit, with "+changes" where the build has changes beyond it; "" where it is
// unknown.
func (b Build) ShortCommit() string {
	short := b.Commit[:min(len(b.Commit), 12)]
	if short != "" && b.Modified {
		short += "+changes"
	}
	return short
}

// String is the build in one line: VERSION (COMMIT) GOVERSION. A pseudo-version has the commit in it, and "+dirty" for
// changes. Then (COMMIT) is left out.
func (b Build) String() string {
	short := b.ShortCommit()
	isPseudoVersion := len(b.Commit) >= 12 && strings.Contains(b.Version, "-"+b.Commit[:12])
	if short != "" && !isPseudoVersion {
		return b.Version + " (" + short + ") " + b.GoVersion
	}
	return b.Version + " " + b.GoVersion
}

// String is the build of this binary in one line.
func String() string { return Get().String() }

// Line is what every program of Jackfield prints as its version: PROGRAM VERSION (COMMIT) GOVERSION.
func Line(program string) string { return program + " " + String() }
