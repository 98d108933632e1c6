// SPDX-License-Identifier: Apache-2.0

// Package cdiregistry loads, validates and looks up CDI specifications
// (Container Device Interface, versions 0.3.0 to 1.1.0).
//
// Its invariant: a [Snapshot] never changes, and the one that
// [Registry.Snapshot] hands out holds every spec file that was renamed into
// place, or closed after writing, before the call began. What a lookup returns
// belongs to the caller: nothing in it is shared with the registry.
//
// The registry turns nothing into container changes; that is the work of
// pkg/resolve and of the appliers.
package cdiregistry
