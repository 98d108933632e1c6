// SPDX-License-Identifier: Apache-2.0

// Package sysfstest creates host trees with the parts of sysfs and /dev that
// package sysfs reads, for the tests of any package.
//
// Its invariant: a tree has the kernel's shape. Devices are directories below
// /sys/devices that the buses and classes link to with relative symlinks, so
// that code that works on a tree works on a host. It holds no testing.TB: every
// method returns an error, and without CAP_MKNOD, which
// device nodes need, the error is [ErrNoMknod], so that a test can skip.
package sysfstest
