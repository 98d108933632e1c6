// SPDX-License-Identifier: Apache-2.0

// Package cdiregistry loads, validates and looks up CDI specifications (Container Device
// Interface, versions 0.3.0 to 1.1.0).
//
// Its invariant: a [Snapshot] never changes. [Registry.Snapshot] returns one that has every spec
// file which was renamed into place, or closed after writing, before the call. What a lookup
// returns belongs to the caller and shares nothing with the registry.
//
// A spec file is kept as a specs.Spec and read again only where its identity (inode, size, times)
// changed. A broken file makes no other file's devices unusable. internal/engine and pkg/cdi turn
// devices into edits of a container.
package cdiregistry
