// SPDX-License-Identifier: Apache-2.0

// Package parts downloads the real programs that Jackfield is tested with
// (containerd, runc, busybox, CNI plugins, ...) from the Debian archive into an
// ignored cache folder of the checkout. It installs nothing.
//
// Invariant: nothing is unpacked that apt has not verified. apt fetches a
// suite's (In)Release file, checks its signature with the archive keys of this
// machine, checks the package index against it and the package against the
// index; there is no way around that here. Apt works on lists and caches of
// its own below the cache folder, so the machine's lists, configuration hooks
// and installed packages are neither used nor touched, and root is not needed.
// The archive's address is the one apt is configured with on this machine.
//
// Programs builds what no distribution has from source, with the versions and
// digests of a go.mod and go.sum.
//
// A package that is in the cache is never looked up again: the second run works
// without a network. Concurrent processes wait for one another.
package parts
