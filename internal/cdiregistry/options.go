// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
)

// DefaultMaxFileSize is the largest spec file that is read, in bytes. The largest known files have a device for each of
// 65,536 IMEX channels, 27 MiB. The CDI libraries have no limit.
const DefaultMaxFileSize = 32 << 20

// Options change how a registry reads. The zero value is what a node wants.
type Options struct {
	// Extensions are the file name extensions that are read, with the dot; nil stands for
	// .json and .yaml, as in the CDI libraries.
	Extensions []string
	// TrustAnyone checks no owner and no mode. It is for tests and for files that are not in use:
	// under it, a user who can write a spec file can have anything mounted and run as root. By
	// default, a spec file is refused where it, or its directory, is writable by the group or by
	// others (the sticky bit does not help), or belongs to anyone but root and the process's own user.
	TrustAnyone bool
	// DisableWatch opens no inotify descriptor. Each Snapshot lists the directories and
	// compares the files by their identity. It suits a process that takes one snapshot.
	DisableWatch bool
}

// DirsEnv is CDI's environment variable for the directories of spec files.
const DirsEnv = "CDI_SPEC_DIRS"

// DirsFromEnv splits the value of [DirsEnv], a list separated by colons in rising priority.
// It drops empty items and returns nil where none is left. An item that is no absolute path
// is an errdefs.ErrInvalidArgument that names the variable.
func DirsFromEnv(value string) ([]string, error) {
	var dirs []string
	for _, d := range strings.Split(value, ":") {
		if d = strings.TrimSpace(d); d == "" {
			continue
		}
		if !path.IsAbs(d) {
			return nil, fmt.Errorf("environment variable %s: invalid value %q: must be absolute paths separated by colons: %w", DirsEnv, d, errdefs.ErrInvalidArgument)
		}
		dirs = append(dirs, path.Clean(d))
	}
	return dirs, nil
}
