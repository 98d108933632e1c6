// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// ValidateOptions change what ValidateFile checks. With the zero value it checks the file alone.
type ValidateOptions struct {
	// CheckHost also checks the hook's program on the host.
	CheckHost bool
	// TrustAnyone skips the checks of owners and modes.
	TrustAnyone bool
}

// ValidateFile reads one file, a host path, as a Registry does, and returns its faults. The error is
// errdefs.ErrNotFound if there is no such file, or an error of its directory.
func ValidateFile(host hostfs.Root, file string, opts ValidateOptions) (diag.List, error) {
	r := newRegistry(host, opts.TrustAnyone)
	dir, err := host.Open(path.Dir(file), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	e := r.loadFile(int(dir.Fd()), path.Clean(file))
	if e == nil {
		return nil, fmt.Errorf("read %q: %w", file, unix.ENOENT)
	}
	list := e.faults
	if e.hook != nil && opts.CheckHost {
		if d := r.checkProgram(e); d != nil {
			list = append(list, d)
		}
	}
	list.Sort()
	return list, nil
}
