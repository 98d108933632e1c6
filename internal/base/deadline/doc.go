// SPDX-License-Identifier: Apache-2.0

// Package deadline runs work that can hang, and stops waiting for it after a while.
//
// A system call on a network file system without its server, or on a FUSE file system without its
// process, cannot be cancelled; only the waiting can end. The work itself continues in its
// goroutine and blocks a thread. A [Pool] bounds the number of goroutines that can hang this way.
//
// The package's invariant: the caller waits no longer than requested, a result that is available at
// the deadline counts, and a panic in the work becomes the caller's error.
package deadline
