// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxContents bounds the files whose content is kept.
	maxContents = 4096
	// settled is how long ago a file must have changed for its identity to tell
	// of every later change: longer than the tick of any kernel's file times.
	settled = 20 * time.Millisecond
)

// contents keep what files of a directory held, by name, so that the containers of
// a pod do not each read and parse them. A content is used while the file is the
// same to the kernel: same inode, size and times. One that changed a moment
// before it was read is not kept, as it could change once more without showing.
// Only what is valid is kept.
type contents struct {
	mu     sync.Mutex
	byName map[string]content
}

type content struct {
	id   fileID
	info *Info // never handed out itself
}

// fileID tells two states of a file apart.
type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func idOf(st *unix.Stat_t) fileID {
	return fileID{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
}

// read gives a file's content, as readInfo does.
func (c *contents) read(o ParseOptions, dirfd int, name, file string) (*Info, error) {
	var before, after unix.Stat_t
	if unix.Fstatat(dirfd, name, &before, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return o.readInfo(dirfd, name, file) // it has the words for what is wrong
	}
	c.mu.Lock()
	have, ok := c.byName[name]
	c.mu.Unlock()
	if ok && have.id == idOf(&before) {
		return have.info.Clone(), nil
	}
	now := time.Now()
	info, err := o.readInfo(dirfd, name, file)
	if err != nil || now.Sub(time.Unix(before.Ctim.Unix())) < settled || now.Sub(time.Unix(before.Mtim.Unix())) < settled {
		return info, err
	}
	if unix.Fstatat(dirfd, name, &after, unix.AT_SYMLINK_NOFOLLOW) == nil && idOf(&after) == idOf(&before) {
		c.keep(name, content{id: idOf(&before), info: info.Clone()})
	}
	return info, nil
}

func (c *contents) keep(name string, have content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil {
		c.byName = map[string]content{}
	}
	for other := range c.byName {
		if len(c.byName) < maxContents {
			break
		}
		delete(c.byName, other)
	}
	c.byName[name] = have
}

func (c *contents) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byName, name)
}

func (c *contents) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byName = nil
}
