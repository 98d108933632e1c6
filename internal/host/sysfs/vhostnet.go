// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// VhostNet returns /dev/net/tun and /dev/vhost-net, the nodes of virtio-user's
// exceptional path (Device Information Specification 3.1.3.2). An application needs
// both; if one is missing the error is ErrNotFound.
func VhostNet(host hostfs.Root) ([]Node, error) {
	l := lookup{host: host, op: "find vhost-net nodes"}
	var nodes []Node
	for _, node := range []struct{ path, class, module string }{
		{"/dev/net/tun", "misc/tun", "tun"},
		{"/dev/vhost-net", "misc/vhost-net", "vhost_net"},
	} {
		if _, err := l.host.Lstat(node.path); errdefs.IsNotFound(err) {
			return nil, l.wrapError(node.path, err, "load the kernel module "+node.module)
		}
		n, err := l.statFixedNode(node.path, node.class, "")
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}
