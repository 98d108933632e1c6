// SPDX-License-Identifier: Apache-2.0

// Package trust decides whether root may act on a file or directory: a process that can write
// it decides what runs as root. It must belong to root or to this process's user, and only
// its owner may write it.
//
// The check is of the stat of an open descriptor, so that what was checked is what is read.
// The caller opens it without following a symlink where others can write the directory.
package trust
