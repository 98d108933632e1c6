// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long the hook waits for this host's file systems. A runtime that
// sets no limit of its own would wait for ever.
const patience = 30 * time.Second

// watch ends the process when it has run out of patience. It sleeps in the kernel: the
// first timer of a process readies the runtime's poller, with a thread that waits in
// it.
func watch() {
	for end := time.Now().Add(patience); ; {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		t := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&t, nil) // a signal wakes it early
	}
	fail(fmt.Errorf("given up after %v: a file system of this host does not answer", patience))
}
