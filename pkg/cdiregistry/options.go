// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
)

// DefaultMaxFileSize is the largest spec file read, in bytes, unless configured.
const DefaultMaxFileSize = 1 << 20

// Trust says whose spec files are believed.
type Trust int

const (
	// TrustOwner, the zero value, refuses a spec file when it, or its directory, can
	// be written by the group or by others (the sticky bit does not help), or
	// belongs to anyone but root and the process's own user.
	TrustOwner Trust = iota
	// TrustAnyone looks at no owner and no mode. It is for tests and for looking at
	// files that are not in use; whoever can write a spec file under it can
	// have anything mounted and run as root.
	TrustAnyone
)

// Options change how a registry reads. The zero value is what a node wants.
type Options struct {
	// Extensions are the file name extensions that are read, with the dot; nil
	// stands for .json and .yaml, as the CDI libraries have it.
	Extensions []string
	// MaxFileSize is in bytes; 0 stands for DefaultMaxFileSize.
	MaxFileSize int64
	Trust       Trust
	// DisableWatch takes no inotify descriptor. Each Snapshot lists the directories
	// again and compares files by their identity: right for a process that takes
	// one snapshot and ends.
	DisableWatch bool
}

// DefaultDirs are the spec directories of CDI in rising priority.
func DefaultDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// DirsEnv is CDI's variable for the directories of specification files.
const DirsEnv = "CDI_SPEC_DIRS"

// DirsFromEnv splits the value of [DirsEnv], a list separated by colons in
// rising priority. Empty items are dropped; nothing left is nil, for which the
// caller takes its configuration or DefaultDirs. An item that is no absolute path is
// an errdefs.ErrInvalidArgument that names the variable.
func DirsFromEnv(value string) ([]string, error) {
	var dirs []string
	for _, d := range strings.Split(value, ":") {
		if d = strings.TrimSpace(d); d == "" {
			continue
		}
		if !path.IsAbs(d) {
			return nil, fmt.Errorf("environment variable %s: found %q, want absolute paths with colons between them: %w", DirsEnv, d, errdefs.ErrInvalidArgument)
		}
		dirs = append(dirs, path.Clean(d))
	}
	return dirs, nil
}
