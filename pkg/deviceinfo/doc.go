// SPDX-License-Identifier: Apache-2.0

// Package deviceinfo implements the Device Information Specification of the
// Network Plumbing Working Group, versions 1.0.0 and 1.1.0, for all three of
// its roles: device plugin ([DevicePluginDir], [DevicePlugin]), NPWG
// implementation ([CNIDir], [NetworkStatus]) and CNI plugin ([CNIFile]). It
// needs no Kubernetes module.
//
// Its invariant: an [Info] that a function of this package returns without an
// error satisfies the specification, and so does every file the package writes.
// What does not is refused with [Diagnostics] that say where (file, line,
// column, key), what was found, what is wanted and by which section. Keys that
// the specification does not know are kept and written back.
//
// Readers treat every file as hostile: regular files of at most [MaxSize]
// bytes only, opened without following a symlink and without blocking. A bad
// file is the error of its own [Entry] and of no other. Writers replace files
// atomically, so that a reader sees the old content or the new, whole.
//
// [ReadSandbox] reads the files of one sandbox; [Index] does so at a cost that
// does not depend on how many files of other sandboxes lie beside them.
//
// docs/device-info.md lists every requirement of the specification with the
// test that holds it.
package deviceinfo
