// SPDX-License-Identifier: Apache-2.0

// Package watch reports changes of files and directories through inotify(7). It never polls.
//
// There are two modes. A [Queue] is the pull mode, for a cache that must be current at each lookup:
// it queues the events of open directories until the caller drains them. A [Watcher] is the push
// mode, for a process that reacts to a change: it watches paths, including paths that do not exist
// yet, and calls a function.
//
// An event reports that something may have changed. The caller then reads the file or directory
// itself. If the kernel drops events, every watched path may have changed.
package watch
