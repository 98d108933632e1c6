// SPDX-License-Identifier: Apache-2.0

// Package cdi finds CDI devices on this host and injects them into OCI specs (Container Device Interface, versions
// 0.3.0 to 1.1.0). It is for container runtimes, device plugins and DRA drivers, and is the registry of Jackfield
// itself. Use it instead of tags.cncf.io/container-device-interface/pkg/cdi ("upstream") for these properties:
//
//   - A lookup sees every spec file that was renamed into place, or closed after writing, before the lookup.
//   - A broken file makes no other file's devices unusable.
//   - Errors have file, line, column, field and rule, and errors about unknown devices list similar names.
//   - A spec file that other users can write is refused, because its author decides which programs root runs.
//   - A [Cache] has no goroutine. Its lookups read only the files that changed.
//   - A lookup returns a copy that belongs to the caller, and an injection that fails leaves the OCI spec unchanged.
//
// [Cache] has the methods of upstream's cache under their names. [Snapshot] is one state of all spec files, for
// several lookups that must agree.
package cdi
