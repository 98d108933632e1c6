// SPDX-License-Identifier: Apache-2.0

// Package parts brings the real programs that Jackfield is tested against
// (containerd, runc, busybox, CNI plugins, ...) out of the Debian archive
// into an ignored cache folder of the checkout, without installing anything.
//
// Invariant: nothing is unpacked that apt has not verified. apt fetches a
// suite's (In)Release file, checks its signature with the archive keys of this
// machine, checks the package index against it and the package against the
// index; there is no way around that here. Apt works on lists and caches of
// its own below the cache folder, so the machine's lists, configuration hooks
// and installed packages are neither used nor touched, and root is not needed.
// The archive's address is the one apt is configured with on this machine.
//
// A package that is in the cache is never looked up again: the second run works
// without a network. Concurrent processes wait for one another.
package parts
