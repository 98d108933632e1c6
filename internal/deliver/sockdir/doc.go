// SPDX-License-Identifier: Apache-2.0

// Package sockdir owns the directories below the socket roots of a node: which sandbox has a directory, and which
// directories exist only for a sandbox. The NRI plugin, the OCI hook, "jackfield inject", the CNI plugin and the
// netavark plugin share one directory of claims, so that no two sandboxes get one directory, nor a socket in it.
//
//	<claims>/%2Frun%2Fvsw%2Fpod-a       the claim of directory /run/vsw/pod-a
//	<claims>/=%2Frun%2Fvsw%2Fvhu0       the holders of socket /run/vsw/vhu0
//
// A directory is claimed, created, limited in size, and removed:
//
//   - The claim is written first, and has every directory before it is created. Removal after a crash at any point then
//     removes all of them, and nothing that existed before.
//   - A small tmpfs limits the size. The claim has the tmpfs before it is mounted.
//   - A directory is removed only if it is the one that was created, by device and inode. Its claim is removed last.
//
// Every check and the write that follows it happen under a lock (flock) of the directory of claims, which the kernel
// releases with its process. No lock is held during calls below a socket root, because its file system can hang.
package sockdir
