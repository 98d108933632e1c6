// SPDX-License-Identifier: Apache-2.0

// Package watch reports changes of files and directories, by inotify(7). It never polls.
//
// There are two modes. A [Queue] is the pull mode, for a cache that must be current at each
// lookup: it queues the events of open directories until the caller drains them. A [Watcher]
// is the push mode, for a process that acts on a change: it watches paths, also paths that do
// not exist yet, and calls a function.
//
// An event says that something may have changed. The caller then reads the file or directory
// itself. When the kernel drops events, everything that is watched may have changed.
package watch
