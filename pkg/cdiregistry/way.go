// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// wayMask is what can make a path lead elsewhere. A watch ends with its first event
// (IN_ONESHOT): one is all it takes to look again, and a directory in which much
// happens costs nothing meanwhile. IN_ATTRIB is not among it, because it would slow
// what others do with the files of /etc and /run.
const wayMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF |
	unix.IN_ONLYDIR | unix.IN_ONESHOT

const (
	// maxElements bounds the elements of a way, with those that symlinks bring.
	maxElements = 512
	// maxLinks is how many symlinks the kernel follows.
	maxLinks = 40
)

// walk follows paths element by element, as the kernel does, and watches each
// directory before it looks at what it has under the next name.
type walk struct {
	inotify int
	mask    uint32
	watches []int

	dirs  []wayDir // from the process's root to where it is
	floor int      // of them, what ".." and absolute symlinks do not leave
}

type wayDir struct {
	fd      int
	watched bool
}

// to follows path below the host root, and gives what it leads to; a missing element
// is an identity, too. An error tells that some change on the way would not be
// announced, or that the way could not be walked.
func (w *walk) to(root, path string) (id dirIdentity, err error) {
	defer func() {
		for _, d := range w.dirs {
			unix.Close(d.fd)
		}
		w.dirs = nil
	}()
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return id, err
	}
	w.dirs, w.floor = []wayDir{{fd: fd}}, 1
	if id, err = w.follow(root); err != nil {
		return id, err
	}
	if id.errno != 0 {
		return id, errNoGuard
	}
	w.floor = len(w.dirs)
	return w.follow(path)
}

func (w *walk) follow(path string) (dirIdentity, error) {
	todo := elements(path)
	for n, links := 0, 0; len(todo) > 0; n++ {
		if n > maxElements {
			return dirIdentity{}, errNoGuard
		}
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if name == ".." {
			if len(w.dirs) > w.floor {
				w.leave()
			}
			continue
		}
		if err := w.watch(); err != nil {
			return dirIdentity{}, err
		}
		fd, err := unix.Openat(w.here().fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return dirIdentity{errno: errnoOf(err)}, nil
		}
		if err != nil {
			return dirIdentity{}, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return dirIdentity{}, err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			w.dirs = append(w.dirs, wayDir{fd: fd})
		case unix.S_IFLNK:
			text, err := readlink(fd)
			unix.Close(fd)
			if links++; err != nil || text == "" || links > maxLinks {
				return dirIdentity{}, errors.Join(errNoGuard, err)
			}
			todo = append(todo, elements(text)...)
			for text[0] == '/' && len(w.dirs) > w.floor {
				w.leave()
			}
		default:
			unix.Close(fd)
			return dirIdentity{errno: unix.ENOTDIR}, nil
		}
	}
	var st unix.Stat_t
	err := unix.Fstat(w.here().fd, &st)
	return dirIdentityOf(&st), err
}

func (w *walk) here() *wayDir { return &w.dirs[len(w.dirs)-1] }

func (w *walk) leave() {
	unix.Close(w.here().fd)
	w.dirs = w.dirs[:len(w.dirs)-1]
}

// watch watches the directory where the walk is.
func (w *walk) watch() error {
	d := w.here()
	if d.watched {
		return nil
	}
	if unannounced(d.fd) {
		return errNoGuard
	}
	wd, err := unix.InotifyAddWatch(w.inotify, fmt.Sprintf("/proc/self/fd/%d", d.fd), w.mask)
	if err != nil {
		return err
	}
	d.watched = true
	w.watches = append(w.watches, wd)
	return nil
}

// unannounced tells that in an open directory names come and go without events: it is
// on a remote file system, or made up by the kernel.
func unannounced(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) == nil {
		switch uint32(st.Type) {
		case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.AUTOFS_SUPER_MAGIC:
			return true
		}
	}
	return hostfs.Remote(fd)
}

// elements are those of a path, the last one first.
func elements(path string) []string {
	list := slices.DeleteFunc(strings.Split(path, "/"), func(e string) bool { return e == "" || e == "." })
	slices.Reverse(list)
	return list
}

func readlink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
