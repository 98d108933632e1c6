// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// nodeName is the name of the first node.
	nodeName = "node"
	// nodeAddress is the address of the control plane and the first node. A kubelet refuses addresses of
	// 127.0.0.0/8.
	nodeAddress = "10.77.0.1"
	// secondName is the name of the second node, and of the jail's interface that leads to it.
	secondName    = "node2"
	secondAddress = "10.77.0.2"
)

// addNodeAddress adds the node's address to the loopback interface of the jail's network namespace. A cluster
// of one node needs no other interface: pods reach the address through their own route to the host.
func addNodeAddress() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("add address: %w", err)
	}
	defer unix.Close(fd)
	for _, step := range []struct {
		call  uint
		bytes []byte
	}{
		{unix.SIOCSIFADDR, []byte{10, 77, 0, 1}},
		{unix.SIOCSIFNETMASK, []byte{255, 255, 255, 255}},
	} {
		req, err := unix.NewIfreq("lo:node")
		if err != nil {
			return fmt.Errorf("add address: %w", err)
		}
		if err := req.SetInet4Addr(step.bytes); err != nil {
			return fmt.Errorf("add address: %w", err)
		}
		if err := unix.IoctlIfreq(fd, step.call, req); err != nil {
			return fmt.Errorf("add address %s: %w", nodeAddress, err)
		}
	}
	return nil
}

// connectNode connects the network namespace of a second node's first process to the jail's, which has the
// control plane.
func connectNode(ctx context.Context, pid int) error {
	inNode := []string{"nsenter", "--net=/proc/" + strconv.Itoa(pid) + "/ns/net", "ip"}
	for _, args := range [][]string{
		{"ip", "link", "add", secondName, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid)},
		{"ip", "address", "add", nodeAddress, "peer", secondAddress, "dev", secondName},
		{"ip", "link", "set", secondName, "up"},
		slices.Concat(inNode, []string{"address", "add", secondAddress, "peer", nodeAddress, "dev", "eth0"}),
		slices.Concat(inNode, []string{"link", "set", "lo", "up"}),
		slices.Concat(inNode, []string{"link", "set", "eth0", "up"}),
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("connect node: %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}
