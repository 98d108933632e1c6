// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"os"
	"testing"
)

// Where two sources contradict each other on a device or a network, the
// attachment is an error that names both, and no other attachment is harmed.
func TestConflicts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(n *node)
		want  []string // in the error
		also  string   // a second interface that shares the conflict
	}{
		{name: "device-info against Multus' record", want: []string{"_net1", devA, scratch, devB}, setup: func(n *node) {
			n.cni("ns/net", "net1", pciInfo(devA))
			n.multus(vfNet("ns/net", devB))
		}},
		{name: "device-info against a device ID of the annotation", want: []string{"_net1", devA, scratch, devB}, setup: func(n *node) {
			n.cni("ns/net", "net1", pciInfo(devA))
			n.multus(net("ns/net", "deviceID", devB))
		}},
		{name: "vDPA against Multus' record", want: []string{"_net1", "vdpa0", devA, scratch, devB}, setup: func(n *node) {
			n.cni("ns/net", "net1", vdpaInfo("vdpa0", devA))
			n.multus(vfNet("ns/net", devB))
		}},
		{name: "device-info against libcni's record", want: []string{"_net1", devA, "results/net-", devB}, setup: func(n *node) {
			n.cni("ns/net", "net1", pciInfo(devA))
			n.result("net", "net1", devB)
		}},
		{name: "Multus' record against libcni's", want: []string{scratch, devA, "results/net-conf-", devB}, setup: func(n *node) {
			n.cni("ns/net", "net1", pciInfo(devA))
			n.multus(vfNet("ns/net", devA))
			n.result("net-conf", "net1", devB)
		}},
		{name: "the CNI plugin's file against the device plugin's", want: []string{"_net1", "vdpa0", "intel.com-vf-" + devA, "vdpa1"}, setup: func(n *node) {
			n.cni("ns/net", "net1", vdpaInfo("vdpa0", devA))
			n.dp(vf, devA, vdpaInfo("vdpa1", devA))
			n.multus(vfNet("ns/net", devA))
		}},
		{name: "the CNI plugin's file against the device plugin's of an ID of its own", want: []string{"_net1", devA, "intel.com-vf-port-1", devB}, setup: func(n *node) {
			n.cni("ns/net", "net1", pciInfo(devA))
			n.dp(vf, "port-1", pciInfo(devB))
			n.multus(vfNet("ns/net", "port-1"))
		}},
		{name: "the CNI plugin's socket against the device plugin's", want: []string{"_net1", "port0/s", "intel.com-vf-port2", "port2/s", "which socket net1 is", "device.path"}, setup: func(n *node) {
			n.cni("ns/net", "net1", vhostOf("client", "/var/run/vsw/port0/s"))
			n.dp(vf, "port2", vhostOf("client", "/var/run/vsw/port2/s"))
			n.multus(vfNet("ns/net", "port2"))
		}},
		{name: "the mode of a socket", want: []string{"_net1", "server", "intel.com-vf-port2", "client"}, setup: func(n *node) {
			n.cni("ns/net", "net1", vhostOf("server", "/var/run/vsw/port2/s"))
			n.dp(vf, "port2", vhostOf("client", "/var/run/vsw/port2/s"))
			n.multus(vfNet("ns/net", "port2"))
		}},
		{name: "another type of socket", want: []string{"_net1", "vhost-user", "intel.com-vf-port2", "memif"}, setup: func(n *node) {
			n.cni("ns/net", "net1", vhostOf("client", "/var/run/vsw/port2/s"))
			n.dp(vf, "port2", `{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"/var/run/vsw/port2/s","mode":"ethernet"}}`)
			n.multus(vfNet("ns/net", "port2"))
		}},
		{name: "two files for one interface", want: []string{"ns-east-", "ns-west-", "_net1"}, also: "net1", setup: func(n *node) {
			n.cni("ns/east", "net1", pciInfo(devA))
			n.cni("ns/west", "net1", pciInfo(devB))
		}},
		{name: "two files for one interface, of which one is broken", want: []string{"ns-east-", "ns-west-", "_net1"}, also: "net1", setup: func(n *node) {
			n.cni("ns/east", "net1", "nonsense")
			n.cni("ns/west", "net1", pciInfo(devB))
		}},
		{name: "two interfaces with one device", want: []string{"_net1", "_net2", devA}, also: "net2", setup: func(n *node) {
			n.cni("ns/east", "net1", pciInfo(devA))
			n.cni("ns/west", "net2", pciInfo(devA))
		}},
		{name: "two interfaces with one vDPA device", want: []string{"_net1", "_net2", "vdpa0"}, also: "net2", setup: func(n *node) {
			n.cni("ns/east", "net1", vdpaInfo("vdpa0", ""))
			n.cni("ns/west", "net2", vdpaInfo("vdpa0", devA))
		}},
		{name: "the device plugin's file against its own ID", want: []string{"intel.com-vf-" + devA, devB}, setup: func(n *node) {
			n.dp(vf, devA, pciInfo(devB))
			n.multus(vfNet("ns/net", devA))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			tc.setup(n)
			n.cni("ns/fine", "net8", vhostInfo)
			n.cni("ns/fine2", "net9", pciInfo(devC))
			n.gives("c1: intel.com/vf=" + devA + "," + devB + "," + devC)
			as, err := n.finder().Sandbox(t.Context(), query())
			check(t, err)
			found := 0
			for _, a := range as {
				switch a.IfName {
				case "net8", "net9":
					if a.Err != nil || a.Info == nil {
						t.Errorf("%s is harmed: %v", a.IfName, a.Err)
					}
				case "net1", tc.also:
					found++
					t.Log(a.Err)
					wantConflict(t, a.Err, tc.want...)
				}
			}
			if want := map[bool]int{true: 1, false: 2}[tc.also == ""]; found != want {
				t.Errorf("%d attachments have the conflict, want %d: %+v", found, want, as)
			}
		})
	}
}

func vhostOf(mode, path string) string {
	return fmt.Sprintf(`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":%q,"path":%q}}`, mode, path)
}

// A socket whose two descriptions are of the same one, or of one that nothing compares.
func TestNoConflictOfSockets(t *testing.T) {
	cni, dp := vhostOf("client", "/var/run/vsw/port0/s"), vhostOf("client", "/var/run/vsw/port2/s")
	for name, setup := range map[string]func(n *node){
		"the same": func(n *node) {
			n.cni("ns/net", "net1", dp)
			n.dp(vf, "port2", dp)
			n.multus(vfNet("ns/net", "port2"))
		},
		"another spelling": func(n *node) {
			check(n.t, os.MkdirAll(n.path("/run/vsw"), 0o755))
			check(n.t, os.Symlink("/run/vsw", n.path("/var/vsw")))
			n.cni("ns/net", "net1", vhostOf("client", "/var/vsw/port2/s"))
			n.dp(vf, "port2", vhostOf("client", "/run/vsw/port2/s"))
			n.multus(vfNet("ns/net", "port2"))
		},
		"a device ID of the annotation": func(n *node) {
			n.cni("ns/net", "net1", cni)
			n.dp(vf, "port2", dp)
			n.multus(net("ns/net", "deviceID", "port2"))
		},
		"a dialect": func(n *node) {
			n.cni("ns/net", "net1", cni)
			n.dp(vf, "port2", dp)
			n.multus(vfNet("ns/net", "port2"))
			n.opts.OwnSocketTerms = func(network, resource string) bool { return network == "ns/net" && resource == vf }
		},
		"no device plugin's file": func(n *node) {
			n.cni("ns/net", "net1", cni)
			n.multus(vfNet("ns/net", "port2"))
		},
		"a device plugin's file that cannot be read": func(n *node) {
			n.cni("ns/net", "net1", cni)
			n.dp(vf, "port2", "nonsense")
			n.multus(vfNet("ns/net", "port2"))
		},
		"a socket made of a PCI function": func(n *node) {
			n.cni("ns/net", "net1", cni)
			n.dp(vf, devA, pciInfo(devA))
			n.multus(vfNet("ns/net", devA))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			setup(n)
			as, err := n.finder().Sandbox(t.Context(), query())
			check(t, err)
			if a := byIfName(t, as, "net1"); a.Err != nil || a.Info == nil {
				t.Errorf("%v", a.Err)
			}
		})
	}
}

// What looks like a contradiction and is none.
func TestNoConflict(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(n *node)
	}{
		{"all sources agree", func(n *node) {
			n.cni("ns/net", "net1", pciInfo(devA))
			n.dp(vf, devA, pciInfo(devA))
			n.multus(vfNet("ns/net", devA))
			n.result("net-conf", "net1", devA)
		}},
		{"addresses in other letters", func(n *node) {
			n.cni("ns/net", "net1", pciInfo("0000:0A:00.2"))
			n.multus(vfNet("ns/net", "0000:0a:00.2"))
			n.result("net-conf", "net1", "0000:0A:00.2")
			n.gives("c1: intel.com/vf=0000:0A:00.2")
		}},
		{"a CNI plugin that made a vDPA device of the function", func(n *node) {
			n.cni("ns/net", "net1", vdpaInfo("vdpa0", devA))
			n.dp(vf, devA, pciInfo(devA))
			n.multus(vfNet("ns/net", devA))
		}},
		{"a device plugin's file that cannot be read", func(n *node) {
			n.cni("ns/net", "net1", pciInfo(devA))
			n.dp(vf, devA, "nonsense")
			n.multus(vfNet("ns/net", devA))
		}},
		{"libcni's record has no device", func(n *node) {
			n.cni("ns/net", "net1", pciInfo(devA))
			n.multus(vfNet("ns/net", devA))
			n.result("net-conf", "net1", "")
		}},
		{"two vDPA devices on one function", func(n *node) {
			n.cni("ns/net", "net1", vdpaInfo("vdpa0", devA))
			n.cni("ns/other", "net2", vdpaInfo("vdpa1", devA))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			n.gives("c1: intel.com/vf=" + devA)
			tc.setup(n)
			as, err := n.finder().Sandbox(t.Context(), query())
			check(t, err)
			if a := byIfName(t, as, "net1"); a.Err != nil || a.Owner != OwnedHere {
				t.Errorf("the device is %s's: %v", a.Owner, a.Err)
			}
		})
	}
}
