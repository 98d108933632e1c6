// SPDX-License-Identifier: Apache-2.0

package sysfs

import "github.com/jackfield/jackfield/pkg/hostfs"

// VhostNet returns /dev/net/tun and /dev/vhost-net, the nodes of virtio-user's
// exceptional path (Device Information Specification 3.1.3.2). An application needs
// both; if one is missing the error is ErrNotFound.
func VhostNet(host hostfs.Root) ([]Node, error) {
	l := lookup{op: "find vhost-net nodes"}
	tun, err := l.statFixedNode(host, "/dev/net/tun", "misc/tun", "")
	if err != nil {
		return nil, hintModule(err, "tun")
	}
	vhost, err := l.statFixedNode(host, "/dev/vhost-net", "misc/vhost-net", "")
	if err != nil {
		return nil, hintModule(err, "vhost_net")
	}
	return []Node{tun, vhost}, nil
}
