// SPDX-License-Identifier: Apache-2.0

// Package deviceinfo implements the Device Information Specification of the Network
// Plumbing Working Group (NPWG), versions 1.0.0 and 1.1.0, for all of its roles: device
// plugin ([DevicePluginDir], [DevicePlugin]), NPWG implementation ([CNIDir],
// [NetworkStatus]) and CNI plugin ([CNIFile]). It depends on no Kubernetes module.
//
// An [Info] that a function of this package returns without an error satisfies the
// specification, and so does every file that the package writes. Anything else is refused
// with [FieldErrors], which give file, line, column and field, the value found, the rule and
// its section. Unknown keys are kept and written back.
//
// Every file is treated as hostile: only regular files of at most [MaxSize] bytes are read,
// opened without following a symlink and without blocking. An invalid file is the error of
// its own [Entry] only. Writers replace files atomically, so a reader sees the old content
// or the new.
//
// [CNIDir.ReadSandbox] reads the files of one sandbox. [Index] does the same at a cost that does
// not depend on the number of other sandboxes' files.
//
// docs/contributing/conformance-device-info.md lists every requirement of the specification with its test.
package deviceinfo
