// SPDX-License-Identifier: Apache-2.0

// Package pathwatch tells when what a path leads to may have changed: the name
// itself, or any directory on the way to it, was made, removed, renamed or
// replaced.
//
// Its invariant: whoever is told looks for himself. A change that happened after
// [Watcher.Add] returned is told of, sooner or later, at least once; an overflow of the
// kernel's queue is told to everyone. Nothing is polled, and one inotify
// descriptor does for all paths. No symlink is followed.
//
// A file system that is mounted over a directory on the way is not noticed: the
// kernel has no event for it.
package pathwatch
