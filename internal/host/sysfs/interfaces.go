// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"net"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const netDirectory = "/sys/class/net"

// HasInterface reports whether the host has a network interface. known is false if sysfs shows no interfaces.
//
// A mounted sysfs shows the network namespace in which it was mounted. In a pod with the host's /sys that is the host's
// namespace, and this process has another one. Where a runtime and this process are in a namespace of their own, the
// process's namespace has the interface.
func HasInterface(host hostfs.Root, name string) (has, known bool) {
	if _, err := host.Stat(netDirectory); err != nil {
		return false, false
	}
	_, err := host.Lstat(path.Join(netDirectory, name))
	if err == nil {
		return true, true
	}
	if host.IsLive() {
		if _, err := net.InterfaceByName(name); err == nil {
			return true, true
		}
	}
	return false, errdefs.IsNotFound(err)
}
