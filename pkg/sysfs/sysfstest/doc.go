// SPDX-License-Identifier: Apache-2.0

// Package sysfstest makes host trees with the parts of sysfs and /dev that
// package sysfs reads, for the tests of any package.
//
// Its invariant: a tree has the kernel's shape. Devices are directories below
// /sys/devices that the buses and classes link to with relative symlinks, so
// that what works on a tree works on a host. It holds no testing.TB: every
// method returns an error, and where device nodes cannot be made (CAP_MKNOD is
// missing) that error is [ErrNoMknod], for a test to skip with.
package sysfstest
