// SPDX-License-Identifier: Apache-2.0

// Package deviceinfo implements the Device Information Specification of the Network Plumbing Working Group (NPWG),
// versions 1.0.0 and 1.1.0, for all of its roles: device plugin ([DevicePluginDir]), NPWG implementation ([CNIDir],
// [NetworkStatus]) and CNI plugin ([CapabilityPath], [CNIDir]). It depends on no Kubernetes module.
//
// An [Info] that a function of this package returns without an error satisfies the specification, and so does every
// file that the package writes. Other content is refused with [FieldErrors], which have file, line, column, field,
// the value, the rule and its section. Unknown keys are kept and written back.
//
// Every file is treated as hostile: only regular files of at most [MaxSize] bytes are read, opened without following
// a symlink and without blocking. An invalid file is the error of its own [Entry] only. Writers replace files
// atomically, so a reader gets the old content or the new.
//
// docs/contributing/conformance-device-info.md lists every requirement of the specification with its test.
package deviceinfo
