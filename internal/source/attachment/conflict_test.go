// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"os"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// If two sources contradict each other on a device or a network, the error of the attachment
// names both. Other attachments are unaffected.
func TestContradictingSourcesAreConflict(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(n *node)
		want  []string // in the error
		also  string   // another interface with the same conflict
	}{
		{name: "device-info against Multus' record", want: []string{"_net1", devA, multusRecordPath, devB}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", pciInfo(devA))
			n.writeMultusRecord(vfNetworkEntry("ns/net", devB))
		}},
		{name: "device-info against a device ID from the annotation", want: []string{"_net1", devA, multusRecordPath, devB}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", pciInfo(devA))
			n.writeMultusRecord(networkEntry("ns/net", "deviceID", devB))
		}},
		{name: "vDPA against Multus' record", want: []string{"_net1", "vdpa0", devA, multusRecordPath, devB}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", vdpaInfo("vdpa0", devA))
			n.writeMultusRecord(vfNetworkEntry("ns/net", devB))
		}},
		{name: "device-info against libcni's record", want: []string{"_net1", devA, "results/net-", devB}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", pciInfo(devA))
			n.writeCNIResult("net", "net1", devB)
		}},
		{name: "Multus' record against libcni's", want: []string{multusRecordPath, devA, "results/net-conf-", devB}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", pciInfo(devA))
			n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
			n.writeCNIResult("net-conf", "net1", devB)
		}},
		{name: "the CNI plugin's file against the device plugin's", want: []string{"_net1", "vdpa0", "intel.com-vf-" + devA, "vdpa1"}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", vdpaInfo("vdpa0", devA))
			n.writeDPFile(vf, devA, vdpaInfo("vdpa1", devA))
			n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
		}},
		{name: "the CNI plugin's file against the device plugin's of a device ID that is no address", want: []string{"_net1", devA, "intel.com-vf-port-1", devB}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", pciInfo(devA))
			n.writeDPFile(vf, "port-1", pciInfo(devB))
			n.writeMultusRecord(vfNetworkEntry("ns/net", "port-1"))
		}},
		{name: "the CNI plugin's socket against the device plugin's", want: []string{"_net1", "port0/s", "intel.com-vf-port2", "port2/s", "which socket net1 is", "device.path"}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", vhostUserInfo("client", "/var/run/vsw/port0/s"))
			n.writeDPFile(vf, "port2", vhostUserInfo("client", "/var/run/vsw/port2/s"))
			n.writeMultusRecord(vfNetworkEntry("ns/net", "port2"))
		}},
		{name: "the mode of a socket", want: []string{"_net1", "server", "intel.com-vf-port2", "client"}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", vhostUserInfo("server", "/var/run/vsw/port2/s"))
			n.writeDPFile(vf, "port2", vhostUserInfo("client", "/var/run/vsw/port2/s"))
			n.writeMultusRecord(vfNetworkEntry("ns/net", "port2"))
		}},
		{name: "another type of socket", want: []string{"_net1", "vhost-user", "intel.com-vf-port2", "memif"}, setup: func(n *node) {
			n.writeCNIFile("ns/net", "net1", vhostUserInfo("client", "/var/run/vsw/port2/s"))
			n.writeDPFile(vf, "port2", `{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"/var/run/vsw/port2/s","mode":"ethernet"}}`)
			n.writeMultusRecord(vfNetworkEntry("ns/net", "port2"))
		}},
		{name: "two files for one interface", want: []string{"ns-east-", "ns-west-", "_net1"}, also: "net1", setup: func(n *node) {
			n.writeCNIFile("ns/east", "net1", pciInfo(devA))
			n.writeCNIFile("ns/west", "net1", pciInfo(devB))
		}},
		{name: "two files for one interface, of which one is broken", want: []string{"ns-east-", "ns-west-", "_net1"}, also: "net1", setup: func(n *node) {
			n.writeCNIFile("ns/east", "net1", "nonsense")
			n.writeCNIFile("ns/west", "net1", pciInfo(devB))
		}},
		{name: "two interfaces with one device", want: []string{"_net1", "_net2", devA}, also: "net2", setup: func(n *node) {
			n.writeCNIFile("ns/east", "net1", pciInfo(devA))
			n.writeCNIFile("ns/west", "net2", pciInfo(devA))
		}},
		{name: "two interfaces with one vDPA device", want: []string{"_net1", "_net2", "vdpa0"}, also: "net2", setup: func(n *node) {
			n.writeCNIFile("ns/east", "net1", vdpaInfo("vdpa0", ""))
			n.writeCNIFile("ns/west", "net2", vdpaInfo("vdpa0", devA))
		}},
		{name: "the device plugin's file against its device ID", want: []string{"intel.com-vf-" + devA, devB}, setup: func(n *node) {
			n.writeDPFile(vf, devA, pciInfo(devB))
			n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			tc.setup(n)
			n.writeCNIFile("ns/fine", "net8", vhostInfo)
			n.writeCNIFile("ns/fine2", "net9", pciInfo(devC))
			n.allocate("c1: intel.com/vf=" + devA + "," + devB + "," + devC)
			as, err := n.newFinder().findNetworks(t.Context(), newQuery())
			testkit.Must(t, err)
			found := 0
			for _, a := range as {
				switch a.IfName {
				case "net8", "net9":
					if a.Err != nil || a.Info == nil {
						t.Errorf("%s is affected: %v", a.IfName, a.Err)
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

func vhostUserInfo(mode, path string) string {
	return fmt.Sprintf(`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":%q,"path":%q}}`, mode, path)
}

// Different descriptions of one socket, and sockets that are not compared, are no conflict.
func TestSocketsThatAgreeAreNoConflict(t *testing.T) {
	cni, dp := vhostUserInfo("client", "/var/run/vsw/port0/s"), vhostUserInfo("client", "/var/run/vsw/port2/s")
	for name, setup := range map[string]func(n *node){
		"same path": func(n *node) {
			n.writeCNIFile("ns/net", "net1", dp)
			n.writeDPFile(vf, "port2", dp)
			n.writeMultusRecord(vfNetworkEntry("ns/net", "port2"))
		},
		"path through a symlink": func(n *node) {
			testkit.Must(n.t, os.MkdirAll(n.path("/run/vsw"), 0o755))
			testkit.Must(n.t, os.Symlink("/run/vsw", n.path("/var/vsw")))
			n.writeCNIFile("ns/net", "net1", vhostUserInfo("client", "/var/vsw/port2/s"))
			n.writeDPFile(vf, "port2", vhostUserInfo("client", "/run/vsw/port2/s"))
			n.writeMultusRecord(vfNetworkEntry("ns/net", "port2"))
		},
		"device ID from the annotation": func(n *node) {
			n.writeCNIFile("ns/net", "net1", cni)
			n.writeDPFile(vf, "port2", dp)
			n.writeMultusRecord(networkEntry("ns/net", "deviceID", "port2"))
		},
		"dialect": func(n *node) {
			n.writeCNIFile("ns/net", "net1", cni)
			n.writeDPFile(vf, "port2", dp)
			n.writeMultusRecord(vfNetworkEntry("ns/net", "port2"))
			n.opts.OwnSocketTerms = func(network, resource string) bool { return network == "ns/net" && resource == vf }
		},
		"no device plugin's file": func(n *node) {
			n.writeCNIFile("ns/net", "net1", cni)
			n.writeMultusRecord(vfNetworkEntry("ns/net", "port2"))
		},
		"a device plugin's file that cannot be read": func(n *node) {
			n.writeCNIFile("ns/net", "net1", cni)
			n.writeDPFile(vf, "port2", "nonsense")
			n.writeMultusRecord(vfNetworkEntry("ns/net", "port2"))
		},
		"socket that replaces a PCI function": func(n *node) {
			n.writeCNIFile("ns/net", "net1", cni)
			n.writeDPFile(vf, devA, pciInfo(devA))
			n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			setup(n)
			as, err := n.newFinder().findNetworks(t.Context(), newQuery())
			testkit.Must(t, err)
			if a := findByIfName(t, as, "net1"); a.Err != nil || a.Info == nil {
				t.Errorf("error %v, want none", a.Err)
			}
		})
	}
}

// Sources that differ without a contradiction are no conflict.
func TestSourcesThatAgreeAreNoConflict(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(n *node)
	}{
		{"all sources agree", func(n *node) {
			n.writeCNIFile("ns/net", "net1", pciInfo(devA))
			n.writeDPFile(vf, devA, pciInfo(devA))
			n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
			n.writeCNIResult("net-conf", "net1", devA)
		}},
		{"addresses in upper and lower case", func(n *node) {
			n.writeCNIFile("ns/net", "net1", pciInfo("0000:0A:00.2"))
			n.writeMultusRecord(vfNetworkEntry("ns/net", "0000:0a:00.2"))
			n.writeCNIResult("net-conf", "net1", "0000:0A:00.2")
			n.allocate("c1: intel.com/vf=0000:0A:00.2")
		}},
		{"a CNI plugin that created a vDPA device on the function", func(n *node) {
			n.writeCNIFile("ns/net", "net1", vdpaInfo("vdpa0", devA))
			n.writeDPFile(vf, devA, pciInfo(devA))
			n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
		}},
		{"a device plugin's file that cannot be read", func(n *node) {
			n.writeCNIFile("ns/net", "net1", pciInfo(devA))
			n.writeDPFile(vf, devA, "nonsense")
			n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
		}},
		{"libcni's record has no device", func(n *node) {
			n.writeCNIFile("ns/net", "net1", pciInfo(devA))
			n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
			n.writeCNIResult("net-conf", "net1", "")
		}},
		{"two vDPA devices on one function", func(n *node) {
			n.writeCNIFile("ns/net", "net1", vdpaInfo("vdpa0", devA))
			n.writeCNIFile("ns/other", "net2", vdpaInfo("vdpa1", devA))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			n.allocate("c1: intel.com/vf=" + devA)
			tc.setup(n)
			as, err := n.newFinder().findNetworks(t.Context(), newQuery())
			testkit.Must(t, err)
			if a := findByIfName(t, as, "net1"); a.Err != nil || a.Owner != OwnedHere {
				t.Errorf("owner %s, error %v", a.Owner, a.Err)
			}
		})
	}
}
