// SPDX-License-Identifier: Apache-2.0

// Package privilege drops the capabilities that the NRI plugin does not use.
//
// Invariant: a dropped capability is dropped in every thread, and nothing adds it again.
package privilege

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// neededCapabilities are the capabilities that the plugin uses, as bits:
//
//	CAP_SYS_ADMIN     mounts in the state directory, which bind sockets into containers
//	CAP_CHOWN         directories and ACLs for the container's user
//	CAP_FOWNER        modes and ACLs of files that belong to that user, or to the vswitch's
//	CAP_DAC_OVERRIDE  directories of other users: sockets are created and removed in them
const neededCapabilities uint64 = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_CHOWN | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_DAC_OVERRIDE

// Drop drops all capabilities except the needed ones permanently: also from the bounding, the
// inheritable and the ambient set, and with no_new_privs. It adds none. It affects all threads and
// their future child processes.
func Drop() error {
	if err := callInEveryThread(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	// Without CAP_SETPCAP the bounding set stays unchanged. With no_new_privs, no capability can be
	// gained from it.
	if data[unix.CAP_SETPCAP/32].Effective&(1<<(unix.CAP_SETPCAP%32)) != 0 {
		for c := uintptr(0); ; c++ {
			if neededCapabilities&(1<<c) != 0 {
				continue
			}
			err := callInEveryThread(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c)
			if errors.Is(err, unix.EINVAL) && c > unix.CAP_AUDIT_READ {
				break // the kernel has no further capabilities
			}
			if err != nil {
				return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
			}
		}
	}
	if err := callInEveryThread(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	for i := range data {
		keep := uint32(neededCapabilities >> (32 * i))
		data[i].Permitted &= keep
		data[i].Effective = data[i].Permitted
		data[i].Inheritable = 0
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)),
		uintptr(unsafe.Pointer(&data)), 0); errno != 0 {
		return fmt.Errorf("set capabilities: %w", errno)
	}
	return nil
}

// callInEveryThread makes a system call in every thread of the process.
func callInEveryThread(call, a, b uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(call, a, b, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
