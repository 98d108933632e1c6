// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// devices.json shows the interface's data of jackfield-cni under the keys that network-status uses.
func TestViewHasInterface(t *testing.T) {
	for notes, want := range map[string]struct{ status, eal string }{
		`{"network":"n","mtu":9000,"queues":4}`: {`"mtu":9000,"jackfield":{"queues":4}`, "--vdev=net_memif0,role=client,id=0,socket=/s,socket-abstract=no"},
		`{"network":"n","mtu":67,"queues":-1}`:  {`"jackfield":{}`, "--vdev=net_memif0,role=client,id=0,socket=/s,socket-abstract=no"},
		`{"network":"n","mac":"C2:11:22:33:44:55","ips":["10.0.0.1/24"],"gateway":["10.0.0.254"],"dns":{"nameservers":["8.8.8.8"]},"bandwidth":{"ingressRate":2048},"labels":[{"key":"a","value":"b"}]}`: {
			`"ips":["10.0.0.1/24"],"gateway":["10.0.0.254"],"mac":"c2:11:22:33:44:55","dns":{"nameservers":["8.8.8.8"]},"jackfield":{"bandwidth":{"ingressRate":2048},"labels":[{"key":"a","value":"b"}]}`,
			"--vdev=net_memif0,role=client,id=0,socket=/s,socket-abstract=no,mac=c2:11:22:33:44:55"},
		// Invalid values are left out.
		`{"mac":"x,path=/dev/mem","ips":["x","10.0.0.1"],"gateway":["y"],"labels":[]}`: {`"jackfield":{}`, "--vdev=net_memif0,role=client,id=0,socket=/s,socket-abstract=no"},
		`{"mac":1}`: {`"device-info":{"jackfield.dev/interface":{"mac":1}},"jackfield":{}`, "--vdev=net_memif0,role=client,id=0,socket=/s,socket-abstract=no"},
	} {
		info, err := deviceinfo.Parse([]byte(`{"type":"memif","version":"1.1.0","memif":{"role":"slave","mode":"ethernet","path":"/s"},"jackfield.dev/interface":`+notes+`}`), "")
		testkit.Must(t, err)
		v := newAttachmentEntry(&attachment.Attachment{Network: "n", IfName: "net1", Info: info}, placement{path: "/s"})
		var got, expected map[string]any
		text, err := json.Marshal(v.element)
		testkit.Must(t, err)
		testkit.Must(t, json.Unmarshal(text, &got))
		testkit.Must(t, json.Unmarshal([]byte(`{"name":"n","interface":"net1",`+want.status+`}`), &expected))
		device := got["device-info"].(map[string]any)
		delete(device, "type")
		delete(device, "version")
		delete(device, "memif")
		if len(device) == 0 {
			delete(got, "device-info")
		}
		if d := cmp.Diff(expected, got); d != "" {
			t.Errorf("%s: want -, got +:\n%s", notes, d)
		}
		if eal := listDevices([]viewEntry{*v}, "")[0].Jackfield.EAL; len(eal) != 1 || eal[0] != want.eal {
			t.Errorf("%s: EAL arguments %q, want %q", notes, eal, want.eal)
		}
	}
}

func TestQueuesAreEALArgumentsOfVirtioUser(t *testing.T) {
	info, err := deviceinfo.Parse([]byte(`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/s"},"jackfield.dev/interface":{"queues":4,"mac":"c2:11:22:33:44:55"}}`), "")
	testkit.Must(t, err)
	a := &attachment.Attachment{Network: "n", IfName: "net1", Info: info}
	v := newAttachmentEntry(a, placement{path: "/s", creator: config.SideApplication})
	const want = "--vdev=net_virtio_user0,path=/s,server=1,queues=4,mac=c2:11:22:33:44:55"
	if eal := listDevices([]viewEntry{*v}, "")[0].Jackfield.EAL; len(eal) != 1 || eal[0] != want {
		t.Errorf("EAL arguments %q, want %q", eal, want)
	}
}
