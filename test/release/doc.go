// SPDX-License-Identifier: Apache-2.0

// Command release makes everything that a release of Jackfield consists of, with the Go toolchain and git
// alone: archives, Debian and RPM packages, the image and the chart as OCI layouts, SBOMs, provenance,
// checksums and notes. docs/contributing/releases.md describes them.
//
// It is a module of its own, because the libraries that write packages are nothing for the product's
// dependencies.
//
// Invariant: the same commit, version and Go give the same bytes, on any machine. All times are the commit's.
package main
