// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
)

// MaxFileSize is the largest spec file that is read, in bytes. The largest known files have a device for each of 65,536
// IMEX channels, 27 MiB. Upstream has no limit.
const MaxFileSize = 32 << 20

// Options change how a [Cache] reads spec files. The zero value is for container runtimes.
type Options struct {
	// Root is the directory that stands for "/" in all host paths; "" is the host's own root.
	Root string
	// SpecDirs are absolute host paths in rising priority; nil stands for DefaultSpecDirs.
	SpecDirs []string
	// Extensions are the file name extensions that are read, with the dot; nil stands for .json and .yaml, as in
	// upstream.
	Extensions []string
	// TrustAnyone checks no owner and no mode. It is for tests and for files that are not in use: a user who can
	// write a spec file can mount any path and run any program as root. By default, a spec file is refused if the
	// group or others can write it or its directory (the sticky bit does not help), or if either belongs to anyone
	// but root and the process's own user.
	TrustAnyone bool
	// DisableWatch opens no inotify descriptor. Each lookup lists the directories and compares the files by their
	// identity. It is for a process with one lookup.
	DisableWatch bool
}

// DefaultSpecDirs returns the spec directories of CDI in rising priority.
func DefaultSpecDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// DirsEnv is CDI's environment variable for the directories of spec files.
const DirsEnv = "CDI_SPEC_DIRS"

// DirsFromEnv splits the value of [DirsEnv], a list separated by colons in rising priority. It drops empty items and
// returns nil if none is left. An item that is no absolute path is an errdefs.ErrInvalidArgument that names the
// variable.
func DirsFromEnv(value string) ([]string, error) {
	var dirs []string
	for _, d := range strings.Split(value, ":") {
		if d = strings.TrimSpace(d); d == "" {
			continue
		}
		if !path.IsAbs(d) {
			return nil, fmt.Errorf("environment variable %s: invalid value %q: must be absolute paths separated by colons: %w",
				DirsEnv, d, errdefs.ErrInvalidArgument)
		}
		dirs = append(dirs, path.Clean(d))
	}
	return dirs, nil
}
