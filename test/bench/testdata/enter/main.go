// SPDX-License-Identifier: Apache-2.0

// Command enter prints a line in the mount namespace of the process it is given. It is
// what a Go process costs at least that does something in a container's mounts: a
// thread of its own, which has left its process's file system.
package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

func main() {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		done <- enter("/proc/" + os.Args[1] + "/ns/mnt")
	}()
	if err := <-done; err != nil {
		fmt.Fprintln(os.Stderr, "enter:", err)
		os.Exit(1)
	}
	fmt.Println("hello, world")
}

func enter(namespace string) error {
	fd, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNS)
}
