// SPDX-License-Identifier: Apache-2.0

// Package hangfs mounts a real FUSE file system that never answers, as a dead network file
// system does.
package hangfs
