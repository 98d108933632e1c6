// SPDX-License-Identifier: Apache-2.0

// Package trust decides whether root can act on a file or directory. A process that can write the
// file decides on actions of root, so the file must belong to root or to this process's user, and only
// its owner may be able to write it.
//
// The check uses the stat of an open descriptor, so that the checked file is the file that is read.
// In a directory that others can write, the caller must open the file without following a symlink.
package trust
