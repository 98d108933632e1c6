// SPDX-License-Identifier: Apache-2.0

// Package claims records which pod sandbox has which socket directory of a node, and
// which sandboxes hold which of the host's sockets. The NRI plugin, the OCI hook,
// "jackfield inject", the CNI and the netavark plugin share one directory of claims, so that no directory or
// socket is delivered to two sandboxes by two of them.
//
//	<claims>/%2Frun%2Fvsw%2Fpod-a       the claim of directory /run/vsw/pod-a
//	<claims>/=%2Frun%2Fvsw%2Fvhu0       the holders of socket /run/vsw/vhu0
//
// Every check and the write that follows it happen under a lock (flock) of the directory
// itself, which the kernel releases with its process. Each adapter keeps a record of its
// own that is written before the claim and removed after it. A claim that a crash leaves is
// found and removed with that record.
package claims
