// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// nsfsMagic is the file system of namespaces (linux/magic.h, NSFS_MAGIC).
const nsfsMagic = 0x6e736673

// openNetns opens the container's network namespace, and reports whether it is the plugin's own.
// Namespaces are magic links, or mounts below /proc and /run, so symlinks in the runtime's path are
// followed.
func (c *call) openNetns() (f *os.File, own bool, err error) {
	// O_NONBLOCK: the path of a runtime can be a FIFO by mistake, and open(2) would wait for its writer.
	fd, err := unix.Open(c.conf.Netns, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, false, attach.Fail(codeContainer, "container unknown: its network namespace does not exist",
				"CNI_NETNS=%q: %v", c.conf.Netns, err)
		}
		return nil, false, c.environment("CNI_NETNS", "must be a network namespace ("+err.Error()+")")
	}
	f = os.NewFile(uintptr(fd), c.conf.Netns)
	own, err = c.checkNetns(fd)
	if err != nil {
		f.Close()
		return nil, false, err
	}
	return f, own, nil
}

// checkNetns rejects other files, and the plugin's own namespace unless CNI_NETNS_OVERRIDE is set,
// like other plugins.
func (c *call) checkNetns(fd int) (own bool, err error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != nsfsMagic {
		return false, c.environment("CNI_NETNS", "must be a network namespace; it is another file")
	}
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err == nil && kind != unix.CLONE_NEWNET {
		return false, c.environment("CNI_NETNS", "must be a network namespace; it is a namespace of another kind")
	}
	var theirs, ours unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &theirs), unix.Stat("/proc/self/ns/net", &ours)); err != nil {
		return false, attach.Fail(codeIO, "I/O failure", "compare CNI_NETNS %q with the plugin's own: %v",
			c.conf.Netns, err)
	}
	own = hostfs.StatID(&theirs) == hostfs.StatID(&ours)
	if override := c.getenv("CNI_NETNS_OVERRIDE"); own && override != "1" && !strings.EqualFold(override, "true") {
		return false, c.environment("CNI_NETNS", "must be the container's network namespace; it is the plugin's own")
	}
	return own, nil
}

// hasInterface reports whether an interface is in the namespace. The thread that enters the
// namespace ends afterwards, so that no other goroutine runs in it.
func hasInterface(ns *os.File, own bool, ifName string) (exists bool, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !own {
			runtime.LockOSThread()
			if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				err = attach.Fail(codeIO, "I/O failure", "enter CNI_NETNS %q: %v", ns.Name(), err)
				return
			}
		}
		var interfaces []net.Interface
		if interfaces, err = net.Interfaces(); err != nil {
			err = attach.Fail(codeIO, "I/O failure", "list the interfaces of the container: %v", err)
			return
		}
		exists = slices.ContainsFunc(interfaces, func(i net.Interface) bool { return i.Name == ifName })
	}()
	<-done
	return exists, err
}
