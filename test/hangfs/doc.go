// SPDX-License-Identifier: Apache-2.0

// Package hangfs mounts a real FUSE file system that never answers: what a dead
// network file system is to whoever opens a directory of it.
package hangfs
