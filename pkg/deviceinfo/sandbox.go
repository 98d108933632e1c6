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

// maxPerSandbox bounds the files of one sandbox. Networks of a pod are counted
// on the fingers; this is for what is not a pod.
const maxPerSandbox = 1024

// Entry is one file of a directory: its content, or why it cannot be had.
type Entry struct {
	File    string // host path
	Network string // "<namespace>-<nad>", of a CNI file
	IfName  string // interface in the pod, of a CNI file
	Info    *Info  // nil when Err is set
	Err     error  // Diagnostics when the content is at fault
}

// ReadSandbox reads the CNI device-info files (§4.2) of one sandbox, named as
// [CNIFileName] names them, from cniDir, a host path ("" is [DefaultCNIDir]).
// Files of other sandboxes are not opened. The entries are sorted by interface,
// then by file. A file that cannot be read is the error of its entry; one that
// vanishes meanwhile is no entry. A directory that does not exist has none.
//
// An ID that is no sandbox ID is errdefs.ErrInvalidArgument, as is a cniDir that
// is no directory. When cniDir holds absurdly many names, the last entry is an
// errdefs.ErrResourceExhausted for the directory.
func ReadSandbox(host hostfs.Root, cniDir, sandboxID string) ([]Entry, error) {
	return ParseOptions{}.ReadSandbox(host, cniDir, sandboxID)
}

// ReadSandbox is [ReadSandbox] with these options.
func (o ParseOptions) ReadSandbox(host hostfs.Root, cniDir, sandboxID string) ([]Entry, error) {
	dir, err := sandboxDir(cniDir, sandboxID)
	if err != nil {
		return nil, err
	}
	f, err := openDirIfThere(host, dir)
	if f == nil || err != nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	scanErr := scanDir(f, dir, maxScan, func(name string) {
		if _, _, ok := MatchCNIFileName(name, sandboxID); ok && len(names) <= maxPerSandbox {
			names = append(names, name)
		}
	})
	entries := readEntries(dir, sandboxID, names, func(name, file string) (*Info, error) {
		return o.readInfo(int(f.Fd()), name, file)
	})
	if scanErr != nil {
		entries = append(entries, Entry{File: dir, Err: scanErr})
	}
	return entries, nil
}

func sandboxDir(cniDir, sandboxID string) (string, error) {
	if !validSandboxID(sandboxID) {
		return "", fmt.Errorf("read device-info of sandbox %q: an ID is not empty and has neither \"/\" nor NUL: %w", sandboxID, errdefs.ErrInvalidArgument)
	}
	return cleanDir(cniDir, DefaultCNIDir)
}

// readEntries reads the files of one sandbox.
func readEntries(dir, sandboxID string, names []string, read func(name, file string) (*Info, error)) []Entry {
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
		if e.Info, e.Err = read(name, e.File); e.Err != nil && errdefs.IsNotFound(e.Err) {
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

func (o ParseOptions) readInfo(dirfd int, name, file string) (*Info, error) {
	data, err := readAt(dirfd, name, file)
	if err != nil {
		return nil, err
	}
	return o.Parse(data, file)
}
