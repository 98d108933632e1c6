// SPDX-License-Identifier: Apache-2.0

// Package validate checks files that decide which devices containers get: device-info, device metadata of
// resource claims, CDI and hooks.d files, and Jackfield's configuration. It finds the kind of a
// file by its place, and the package that knows the format checks it.
//
// Its invariant: a file that a caller names has a finding, or valid content. A fault of this
// host, and not of the file, is an error only where this host reads the file.
package validate
