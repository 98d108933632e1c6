// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// maxPerSandbox bounds the files of one sandbox. A pod has a handful of networks.
const maxPerSandbox = 1024

// Entry is one file of a directory: its content, or the error of reading it.
type Entry struct {
	File    string // host path
	Network string // "<namespace>-<nad>"; only for a CNI file
	IfName  string // interface in the pod; only for a CNI file
	Info    *Info  // nil if Err is set
	Err     error  // FieldErrors if the content is invalid
}

// ReadSandbox reads the files of one sandbox, named by [CNIFileName]. Files of other
// sandboxes are not opened. The entries are sorted by interface, then by file. A file that cannot be
// read has the error in its entry; a file that is removed meanwhile has no entry. A
// directory that does not exist has no entries.
//
// The error for an invalid sandbox ID, and for a path that is not a directory, is
// errdefs.ErrInvalidArgument. If the directory holds more than 2^20 names, the last entry is an
// errdefs.ErrResourceExhausted for the directory.
func (d CNIDir) ReadSandbox(sandboxID string) ([]Entry, error) {
	open, err := d.openForSandbox(sandboxID)
	if err != nil {
		return nil, hostfs.IgnoreNotFound(err)
	}
	defer open.Close()
	names, err := open.listNames(belongsTo(sandboxID))
	return open.readSandbox(sandboxID, names, err), nil
}

// ReadFiles is [CNIDir.ReadSandbox] for the names of the sandbox's files. It does not list the directory.
func (d CNIDir) ReadFiles(sandboxID string, names []string) ([]Entry, error) {
	for _, file := range names {
		if err := name.CheckFile(file); err != nil {
			return nil, fmt.Errorf("read device-info of sandbox %q: %w", sandboxID, err)
		}
	}
	open, err := d.openForSandbox(sandboxID)
	if err != nil {
		return nil, hostfs.IgnoreNotFound(err)
	}
	defer open.Close()
	return open.readSandbox(sandboxID, names, nil), nil
}

// openForSandbox opens the directory for a lookup of one sandbox.
func (d CNIDir) openForSandbox(sandboxID string) (*directory, error) {
	host, err := openRoot(d.Root)
	if err != nil {
		return nil, err
	}
	return openSandboxDir(host, d.Dir, sandboxID)
}

// openSandboxDir checks the arguments of a lookup and opens the directory.
func openSandboxDir(host hostfs.Root, cniDir, sandboxID string) (*directory, error) {
	if !name.IsSandboxID(sandboxID) {
		return nil, fmt.Errorf("read device-info of sandbox %q: a sandbox ID is not empty and has neither \"/\" nor NUL: %w",
			sandboxID, errdefs.ErrInvalidArgument)
	}
	dir, err := cleanDir(cniDir, DefaultCNIDir)
	if err != nil {
		return nil, err
	}
	return openDir(host, dir)
}

// belongsTo returns a function that reports whether a file name is of the sandbox.
func belongsTo(sandboxID string) func(name string) bool {
	return func(file string) bool {
		_, _, ok := name.MatchInfoFile(file, sandboxID)
		return ok
	}
}

// readSandbox reads the files of a sandbox with the given names. listErr is the error of listing
// the directory, which becomes an entry.
func (d *directory) readSandbox(sandboxID string, names []string, listErr error) []Entry {
	if len(names) > maxPerSandbox {
		names = names[:maxPerSandbox]
		listErr = cmp.Or(listErr, fmt.Errorf("read device-info of sandbox %q in %q: more than %d files: %w",
			sandboxID, d.path, maxPerSandbox, errdefs.ErrResourceExhausted))
	}
	entries := d.readEntries(names)
	for i := range entries {
		e := &entries[i]
		e.Network, e.IfName, _ = name.MatchInfoFile(path.Base(e.File), sandboxID)
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.IfName, b.IfName), cmp.Compare(a.File, b.File))
	})
	if listErr != nil {
		entries = append(entries, Entry{File: d.path, Err: listErr})
	}
	return entries
}
