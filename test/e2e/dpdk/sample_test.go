// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// The sample application of the tenant's kit finds its device in devices.json, without a shell. It sends back what
// Open vSwitch sends to the pod's port.
func TestSampleApplicationReturnsPackets(t *testing.T) {
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
		tree := dpdk.LayOVS(t)
		program := tree.BuildSample(t)
		h.MkdirAll("/run/vsw/ovs")
		ovs := tree.StartOVS(t, "/run/vsw/ovs")
		ovs.Vsctl("add-port", "br0", "vhost0", "--", "set", "interface", "vhost0", "type=dpdkvhostuser", "ofport_request=1")
		ovs.Ofctl("add-flow", "in_port=1,actions=drop")
		h.StartPlugin(node.PluginOptions{Config: config})

		pod := h.RunPod(node.PodOptions{Name: "reflect", Namespace: "dpdk-1"})
		devinfo(h, "", pod, "net1", vhostUser("client", "/run/vsw/ovs/vhost0"))
		_, cpu, err := dpdk.CPUs()
		if err != nil {
			t.Fatal(err)
		}
		ctr := pod.Run(node.ContainerOptions{Command: append([]string{"/dpdk-reflect"}, dpdk.Generic("app", cpu)...),
			Mounts: append(tree.Mounts(), &cri.Mount{HostPath: program, ContainerPath: "/dpdk-reflect", Readonly: true})})
		printed(t, ctr)
		ctr.WaitLogs("reflecting on 1 ports")

		ovs.Linked("vhost0")
		// The switch sends a packet to the pod until one comes back, because it drops what the driver has no room for.
		h.Eventually(func() error {
			ovs.Ofctl("packet-out", "in_port=controller,packet="+strings.Repeat("02", 12)+"88b5"+strings.Repeat("00", 50)+",actions=output:1")
			if flows := ovs.Ofctl("dump-flows", "in_port=1"); strings.Contains(flows, "n_packets=0,") {
				return fmt.Errorf("no packet comes back: %s", flows)
			}
			return nil
		})
		if err := unix.Kill(ctr.PID(), unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ctr.WaitLogs(" packets\n")
		if !regexp.MustCompile(`(?m)^port 0: [1-9]\d* packets$`).MatchString(ctr.Logs()) {
			t.Errorf("the sample has reflected nothing:\n%s", node.Tail(ctr.Logs(), 20))
		}
	})
}
