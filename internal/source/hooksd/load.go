// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// maxNames bounds the names in one directory, maxFiles the hook files among them.
const (
	maxNames = 1 << 16
	maxFiles = 4096
)

// hookFile is one file.
type hookFile struct {
	hook     *Hook          // nil if the file has an error
	pathNode *jsontree.Node // place of the program's path in the file
	faults   diag.List
}

// listHookFiles returns the names of the hook files in a directory, sorted.
func (r *Registry) listHookFiles(dir string) ([]string, error) {
	names, err := r.files.Host.ReadDir(dir, maxNames)
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".json") })
	if len(names) > maxFiles {
		return nil, fmt.Errorf("the directory has more than %d hook files: %w", maxFiles, errdefs.ErrResourceExhausted)
	}
	return names, err
}

// loadFile reads one file of an open directory. It returns nil if the file does not exist. Dangling
// symlinks are ignored, like in Podman and CRI-O.
func (r *Registry) loadFile(dirfd int, file string) *hookFile {
	read, fault := r.files.ReadFile(dirfd, file)
	switch {
	case read == nil:
		return nil
	case fault != nil && read.IsLink && errdefs.IsNotFound(fault):
		return &hookFile{}
	case fault != nil:
		fault.File = file
		return &hookFile{faults: diag.List{fault}}
	}
	return parseFile(read.Data, file)
}

// checkProgram returns the reason why the host cannot run a hook's program, or nil.
func (r *Registry) checkProgram(e *hookFile) *diag.Diagnostic {
	p := &diag.Diagnostic{File: e.hook.File, Line: e.pathNode.Line, Column: e.pathNode.Column, Field: "hook.path",
		Found: diag.Quote(e.hook.Path), Kind: errdefs.ErrFailedPrecondition}
	st, err := r.files.Host.Stat(e.hook.Path)
	// The runtime would report each of these faults only when it creates a container, and then fail the container.
	switch {
	case errdefs.IsNotFound(err):
		p.Rule, p.Kind = "no such file on this host; install the program, or remove the hook file", errdefs.ErrNotFound
	case err != nil:
		p.Rule, p.Kind = "cannot inspect it on this host: "+hostfs.Errno(err).Error(), errdefs.ErrUnavailable
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		p.Rule = "on this host it is a " + hostfs.TypeName(st.Mode) + ", not a program"
	case st.Mode&0o111 == 0:
		p.Rule = fmt.Sprintf("it has mode %04o on this host and cannot be executed; run `chmod +x %s`", st.Mode&0o7777,
			e.hook.Path)
	default:
		d := r.files.Check("program", e.hook.Path, &st)
		if d == nil {
			if d = r.checkDirectories(e.hook.Path); d == nil {
				return nil
			}
			d.Found = p.Found + " through " + d.Found
		}
		p.Found, p.Rule, p.Hint, p.Kind = d.Found, d.Rule, d.Hint, d.Kind
	}
	return p
}

// checkDirectories checks each directory on a program's path.
func (r *Registry) checkDirectories(file string) *diag.Diagnostic {
	if r.files.TrustAnyone {
		return nil
	}
	err := trust.CheckParents(r.files.Host, file, trust.Options{UnmappedOwner: true, StickyGroup: true})
	var fault *trust.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fault):
		return &diag.Diagnostic{Found: fmt.Sprintf("directory %q, %s", fault.Path, fault.Found), Rule: fault.Rule,
			Hint: fault.Remedy, Kind: errdefs.ErrPermissionDenied}
	}
	return &diag.Diagnostic{Found: diag.Quote(file) + ", whose directories cannot be inspected",
		Rule: diag.ErrorText(err), Kind: errdefs.ErrUnavailable}
}
