// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxPerSandbox bounds the files of one sandbox. A pod has a handful of networks.
const maxPerSandbox = 1024

// Entry is one file of a directory: its content, or the error of reading it.
type Entry struct {
	File    string // host path
	Network string // "<namespace>-<nad>"; only for a CNI file
	IfName  string // interface in the pod; only for a CNI file
	Info    *Info  // nil if Err is set
	Err     error  // Diagnostics if the content is invalid
}

// ReadSandbox reads the CNI device-info files (§4.2) of one sandbox, named by
// [CNIFileName], from cniDir, a host path ("" is [DefaultCNIDir]). Files of other sandboxes
// are not opened. The entries are sorted by interface, then by file. A file that cannot be
// read has the error in its entry; a file that is removed meanwhile has no entry. A
// directory that does not exist has no entries.
//
// The error for an invalid sandbox ID, and for a cniDir that is not a directory, is
// errdefs.ErrInvalidArgument. If cniDir holds more than 2^20 names, the last entry is an
// errdefs.ErrResourceExhausted for the directory.
func ReadSandbox(host hostfs.Root, cniDir, sandboxID string) ([]Entry, error) {
	dir, err := sandboxDir(cniDir, sandboxID)
	if err != nil {
		return nil, err
	}
	f, err := openDirIfExists(host, dir)
	if f == nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	listErr := visitNames(f, dir, maxListed, func(name string) {
		if _, _, ok := MatchCNIFileName(name, sandboxID); ok && len(names) <= maxPerSandbox {
			names = append(names, name)
		}
	})
	entries := readEntries(int(f.Fd()), dir, sandboxID, names)
	if listErr != nil {
		entries = append(entries, Entry{File: dir, Err: listErr})
	}
	return entries, nil
}

// sandboxDir checks the arguments of a lookup and returns the directory.
func sandboxDir(cniDir, sandboxID string) (string, error) {
	if !isSandboxID(sandboxID) {
		return "", fmt.Errorf("read device-info of sandbox %q: a sandbox ID is not empty and has neither \"/\" nor NUL: %w", sandboxID, errdefs.ErrInvalidArgument)
	}
	return cleanDir(cniDir, DefaultCNIDir)
}

// readEntries reads the files of one sandbox in the open directory.
func readEntries(dirfd int, dir, sandboxID string, names []string) []Entry {
	if len(names) == 0 {
		return nil
	}
	tooMany := len(names) > maxPerSandbox
	if tooMany {
		names = names[:maxPerSandbox]
	}
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		e := Entry{File: path.Join(dir, name)}
		var ok bool
		if e.Network, e.IfName, ok = MatchCNIFileName(name, sandboxID); !ok {
			continue
		}
		if e.Info, e.Err = readInfo(dirfd, name, e.File); e.Err != nil && errdefs.IsNotFound(e.Err) {
			continue
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.IfName, b.IfName), cmp.Compare(a.File, b.File))
	})
	if tooMany {
		entries = append(entries, Entry{File: dir, Err: fmt.Errorf("read device-info of sandbox %q in %q: more than %d files: %w",
			sandboxID, dir, maxPerSandbox, errdefs.ErrResourceExhausted)})
	}
	return entries
}

// readInfo reads and parses the device-info file name in the open directory.
func readInfo(dirfd int, name, file string) (*Info, error) {
	data, err := readFileAt(dirfd, name, file)
	if err != nil {
		return nil, err
	}
	return Parse(data, file)
}
