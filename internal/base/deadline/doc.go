// SPDX-License-Identifier: Apache-2.0

// Package deadline runs work that may hang and stops waiting for it after a while.
//
// A system call on a network file system without its server, or on a FUSE without its
// process, cannot be cancelled: only the waiting can end. The work itself goes on in its
// goroutine and holds a thread. A [Pool] bounds how many goroutines can hang that way.
//
// The package's invariant: the caller waits no longer than it asked for, a result that is
// there when the time is up counts, and a panic in the work is an error for the caller.
package deadline
