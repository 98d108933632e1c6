// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `[
  {"name": "blue/fast", "interface": "net-1", "ips": ["10.0.0.1/24"], "mtu": 1500,
   "device-info": {"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "/s"}},
   "jackfield": {"socket-created-by": "host", "queues": 2, "eal": ["--vdev=net_virtio_user0,path=/s"]}},
  {"name": "nic/vf/2", "device-info": {"type": "pci", "version": "1.0.0", "pci": {"pci-address": "0000:03:00.1"}},
   "jackfield": {"claim": {"name": "pod-x", "pod-claim": "nic", "request": "vf", "driver": "d", "pool": "p", "device": "v"}, "eal": ["-a", "0000:03:00.1"]}},
  {"name": "blue/slow", "interface": "net2", "device-info": {"type": "vdpa", "version": "1.1.0", "vdpa": {"pci-address": "0000:04:00.2"}},
   "jackfield": {"claim": {"name": "nic", "request": "vf", "driver": "d", "pool": "p", "device": "w"}, "eal": ["--vdev=a b"]}},
  {"name": "socket:ovs-db", "jackfield": {"socket": "/db.sock", "socket-created-by": "host"}}
]`

func parse(t *testing.T, text string) []Device {
	t.Helper()
	list, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestReadTakesFileOfContainer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "devices.json")
	t.Setenv(FileVariable, file)
	if _, err := Read(""); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(file, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := Read("")
	if err != nil || len(list) != 4 || list[0].MTU != 1500 || list[0].Jackfield.Queues != 2 {
		t.Errorf("%v: %+v", err, list)
	}
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(""); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("the error does not name the file: %v", err)
	}
}

func TestFindKnowsInterfacesAndNames(t *testing.T) {
	list := parse(t, sample)
	for name, want := range map[string]string{"net-1": "/s", "socket:ovs-db": "/db.sock"} {
		if d := Find(list, name); d == nil || d.Socket() != want {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, name := range []string{"", "net9"} {
		if d := Find(list, name); d != nil {
			t.Errorf("%q: %+v", name, d)
		}
	}
}

// EAL takes all PCI devices of the machine, unless an argument limits it.
func TestEALExcludesOtherPCIDevices(t *testing.T) {
	list := parse(t, sample)
	if d := cmp.Diff([]string{"--vdev=net_virtio_user0,path=/s", "-a", "0000:03:00.1", "--vdev=a b"}, EAL(list)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"--vdev=net_virtio_user0,path=/s", "--no-pci"}, EAL(list[:1])); d != "" {
		t.Error(d)
	}
}

func TestVariablesDescribeDevices(t *testing.T) {
	var got []Variable
	for _, d := range parse(t, sample) {
		got = append(got, d.Variables(d.Names()...)...)
	}
	if d := cmp.Diff([]Variable{
		{"JACKFIELD_NET_1_TYPE", "vhost-user"}, {"JACKFIELD_NET_1_SOCKET", "/s"}, {"JACKFIELD_NET_1_EAL", "--vdev=net_virtio_user0,path=/s"},
		{"JACKFIELD_NIC_VF_2_TYPE", "pci"}, {"JACKFIELD_NIC_VF_2_PCI", "0000:03:00.1"}, {"JACKFIELD_NIC_VF_2_EAL", "-a 0000:03:00.1"},
		// An argument with a space has no variable.
		{"JACKFIELD_NET2_TYPE", "vdpa"}, {"JACKFIELD_NET2_PCI", "0000:04:00.2"},
		{"JACKFIELD_SOCKET_OVS_DB", "/db.sock"},
	}, got); d != "" {
		t.Error(d)
	}
}

// Every accepted file has devices whose texts can be arguments of a program.
func FuzzParse(f *testing.F) {
	for _, text := range []string{sample, "[]", "[null]", `[{"name":"\u0000"}]`, `[{"device-info":{"version":"1."}}]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Parse(data)
		if err != nil {
			return
		}
		args := EAL(list)
		for _, d := range list {
			args = append(args, d.Type(), d.Socket(), d.PCIAddress())
			for _, v := range d.Variables(d.Names()...) {
				args = append(args, v.Name, v.Value)
			}
		}
		if slices.ContainsFunc(args, func(a string) bool { return strings.ContainsRune(a, 0) }) {
			t.Errorf("an argument has a NUL character: %q", args)
		}
	})
}
