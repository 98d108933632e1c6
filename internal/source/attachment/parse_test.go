// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

func TestMultusRecordIsRead(t *testing.T) {
	whole := formatMultusRecord(t, networkEntry("ns/east", "ifnameRequest", "fast0", "macRequest", "02:00:00:00:00:01", "deviceID", devA, "resourceName", vf),
		networkEntry("ns/west", "deviceID", devB), map[string]any{"Name": "other/list", "ConfList": map[string]any{"cniVersion": "1.0.0", "name": "chain", "plugins": []any{}}})
	got, err := parseDelegates([]byte(whole))
	testkit.Must(t, err)
	want := []delegate{
		{Name: "cbr0", ConfList: confName{"cbr0"}, IfName: "eth0"},
		{Name: "ns/east", Conf: confName{"east-conf"}, IfName: "fast0", DeviceID: devA, Resource: vf},
		{Name: "ns/west", Conf: confName{"west-conf"}, IfName: "net2", DeviceID: devB},
		{Name: "other/list", ConfList: confName{"chain"}, IfName: "net3"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	for _, tc := range []struct{ name, text, want string }{
		{"no list", `{"Name":"ns/net"}`, "must be an array"},
		{"null in it", `[null]`, "network 0: 1:2: invalid value null: must be an object"},
		{"a name that is a number", `[{"Name":7}]`, "found a number: must be a string"},
		{"a name with a path", `[{"Name":"ns/../net"}]`, "not a network name"},
		{"a name with a newline", `[{"Name":"ns/n\net"}]`, "not a network name"},
		{"a long name", `[{"Name":"` + strings.Repeat("x", maxName+1) + `"}]`, "not a network name"},
		{"an interface with a path", `[{"ifnameRequest":"../net1"}]`, "not an interface name"},
		{"a long interface", `[{"ifnameRequest":"aaaaaaaaaaaaaaaa"}]`, "not an interface name"},
		{"an interface twice", `[{"Name":"a"},{"Name":"ns/b","ifnameRequest":"net2"},{"Name":"ns/c"}]`, `same interface "net2"`},
		{"a device ID with a space", `[{"deviceID":"a b"}]`, "deviceID"},
		{"a long device ID", `[{"deviceID":"` + strings.Repeat("x", maxID+1) + `"}]`, "deviceID"},
		{"a resource with a control character", `[{"resourceName":"a/\u0001"}]`, "resourceName"},
		{"a key twice", `[{"deviceID":"a","deviceID":"b"}]`, `found "deviceID": a key must occur only once`},
		{"a key twice, once escaped", `[{"deviceID":"a","device\u0049D":"b"}]`, "only once"},
		{"many networks", "[" + strings.Repeat("{},", maxDelegates) + "{}]", "more than 256"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ds, err := parseDelegates([]byte(tc.text))
			if ds != nil || !errdefs.IsInvalidArgument(err) && !errdefs.IsConflict(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, %v", ds, err)
			}
		})
	}
	// Keys are case-sensitive, and unknown keys are ignored.
	got, err = parseDelegates([]byte(`[{"name":"x/y","DEVICEID":"z","future":{"a":[1,{"b":null}]},"Name":null,"deviceID":null}]`))
	testkit.Must(t, err)
	if d := cmp.Diff([]delegate{{IfName: "eth0"}}, got); d != "" {
		t.Error(d)
	}
}

func TestCNIResultIsRead(t *testing.T) {
	got, record, err := parseResult([]byte(cniResult("conf", sandbox, "net1", devA)))
	testkit.Must(t, err)
	want := cachedResult{Kind: cacheKind, ContainerID: sandbox, IfName: "net1", Network: "conf", Result: got.Result}
	want.CapabilityArgs.DeviceID = devA
	if !reflect.DeepEqual(*got, want) || record.mac != "" || record.ips != nil || record.mtu != 0 {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	testkit.Must(t, got.checkIdentity("conf", sandbox, "net1"))
	for _, other := range [][3]string{{"other", sandbox, "net1"}, {"conf", "other", "net1"}, {"conf", sandbox, "net2"}} {
		if err := got.checkIdentity(other[0], other[1], other[2]); !errdefs.IsInvalidArgument(err) {
			t.Errorf("accepted for %v: %v", other, err)
		}
	}
	for _, text := range []string{`[]`, `{"kind":1}`, `{"kind":"cniCacheV1"`, `{"capabilityArgs":{"deviceID":"a b"}}`, `{"capabilityArgs":{"deviceID":{}}}`, `{"kind":"a","kind":"a"}`} {
		if c, _, err := parseResult([]byte(text)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
	if c, _, err := parseResult([]byte(`{"kind":"cniCacheV1","capabilityArgs":null,"result":{"deep":[[[1]]]}}`)); err != nil || c.Kind != cacheKind {
		t.Errorf("%+v, %v", c, err)
	}
}

// Of a CNI result the interface in the pod counts, and what is invalid is left out.
func TestParseResultReadsInterface(t *testing.T) {
	for result, want := range map[string]string{
		`{"interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01"}, {"name": "net1", "mac": "C2-11-22-33-44-55", "mtu": 9000, "sandbox": "/run/netns/x"}, {"name": "eth0", "sandbox": "/run/netns/x"}],
		  "ips": [{"address": "192.0.2.5/24", "interface": 1}, {"address": "10.0.0.1/8", "interface": 2}, {"address": "2001:db8::5/64"}, {"address": "192.0.2.6"}]}`: "c2:11:22:33:44:55 [192.0.2.5/24 2001:db8::5/64] 9000",
		`{"interfaces": [{"name": "net1", "mac": "00:00:00:00:00:00", "mtu": 1, "sandbox": "/run/netns/x"}]}`: " [] 0",
		`{"interfaces": [{"name": "net1", "mac": "x", "mtu": 65536, "sandbox": "/run/netns/x"}]}`:             " [] 0",
		`{"interfaces": [{"name": "net2", "mac": "c2:11:22:33:44:55", "sandbox": "/run/netns/x"}]}`:           " [] 0",
		`{"interfaces": [{"name": "net1", "mac": 1, "sandbox": "/run/netns/x"}]}`:                             " [] 0",
		`[]`: " [] 0",
	} {
		_, record, err := parseResult([]byte(`{"ifName": "net1", "result": ` + result + `}`))
		testkit.Must(t, err)
		if got := fmt.Sprint(record.mac, " ", record.ips, " ", record.mtu); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", result, got, want)
		}
	}
}

func TestPodNetworksAnnotationIsRead(t *testing.T) {
	for _, tc := range []struct {
		value string
		want  string // "ns/name@if ..."
		bad   bool
	}{
		{value: "", want: ""},
		{value: "a", want: "ns/a@"},
		{value: " a , other/b@lan0 ,", want: "ns/a@ other/b@lan0"},
		{value: "a@", want: "ns/a@"},
		{value: `[{"name":"a"},{"name":"b","namespace":"other","interface":"lan0"}]`, want: "ns/a@ other/b@lan0"},
		{value: `[{"name":"a","interfaceRequest":"old0"}]`, want: "ns/a@old0"},
		{value: ` [ {"name":"a","ips":["10.0.0.1/24"],"deviceID":"0000:ff:00.0","device-info":{"path":"/etc/shadow"},"cni-args":{"x":[1]}} ] `, want: "ns/a@"},
		{value: `[]`, want: ""},
		{value: `{"name":"a"}`, bad: true},
		{value: `[{"name":"a"},]`, bad: true},
		{value: `[{"name":7}]`, bad: true},
		{value: `[{}]`, bad: true},
		{value: `["a"]`, bad: true},
		{value: `[{"name":"a","name":"b"}]`, bad: true},
		{value: "a/b/c", bad: true},
		{value: "/a", bad: true},
		{value: "a@../../x", bad: true},
		{value: "a\x00", bad: true},
		{value: "a\xff", bad: true},
		{value: strings.Repeat("a,", maxSelections+1), bad: true},
		{value: strings.Repeat(" ", maxAnnotation+1), bad: true},
	} {
		list, err := parseNetworks(tc.value, "ns")
		if tc.bad {
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(fmt.Sprint(err), NetworksAnnotation) {
				t.Errorf("%.40q: %v, %v", tc.value, list, err)
			}
			continue
		}
		var got []string
		for _, s := range list {
			got = append(got, s.network+"@"+s.ifName)
		}
		if s := strings.Join(got, " "); s != tc.want || err != nil {
			t.Errorf("%.40q: got %q, want %q: %v", tc.value, s, tc.want, err)
		}
	}
}

func TestDeviceVariablesAreRead(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  []string
		want string // key:ids and, in braces, nodes of each device
		note string
	}{
		{name: "nothing", env: []string{"PATH=/bin", "PCIDEVICE=x", "PCIDEVICE_=x", "PCIDEVICE_A", "PCIDEVICE_B="}},
		{name: "IDs", env: []string{"PCIDEVICE_INTEL_COM_VF=" + devA + "," + devB, "PCIDEVICE_A=x"}, want: "A:x INTEL_COM_VF:" + devA + "," + devB},
		{name: "one twice", env: []string{"PCIDEVICE_A=x,y,x"}, want: "A:x,y"},
		{name: "the last one counts", env: []string{"PCIDEVICE_A=x", "PCIDEVICE_A=y"}, want: "A:y"},
		{name: "keys as in the code", env: []string{"PCIDEVICE_A=x", `PCIDEVICE_A_INFO={"x":{"generic":{"deviceID":"x"},"vfio":{"mount":"/dev/vfio/vfio","dev-mount":"/dev/vfio/3"}}}`},
			want: "A:x{x=/dev/vfio/3,/dev/vfio/vfio}"},
		{name: "keys as in the README", env: []string{"PCIDEVICE_A=x", `PCIDEVICE_A_INFO={"x":{"vfio":{"vfio-mount":"/dev/vfio/vfio","vfio-dev-mount":"/dev/vfio/noiommu-0"},"extraInfo":{"mount":"/etc"}}}`},
			want: "A:x{x=/dev/vfio/noiommu-0,/dev/vfio/vfio}"},
		{name: "every kind", env: []string{`PCIDEVICE_A_INFO={"x":{"vdpa":{"mount":"/dev/vhost-vdpa-0"},"uio":{"mount":"/dev/uio1"},"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"},"rdma":{"rdma_cm":"/dev/infiniband/rdma_cm","umad":"/dev/infiniband/umad0","rdma_dev":"mlx5_0"}}}`},
			want: "A:x{x=/dev/infiniband/rdma_cm,/dev/infiniband/umad0,/dev/net/tun,/dev/uio1,/dev/vhost-net,/dev/vhost-vdpa-0}"},
		{name: "paths that are not of a device", env: []string{`PCIDEVICE_A_INFO={"x":{"vfio":{"mount":"/etc/shadow","dev-mount":7},"uio":null}}`}, want: "A:x{x=}"},
		{name: "a resource whose name ends in _INFO", env: []string{"PCIDEVICE_A_INFO=x", `PCIDEVICE_A_INFO_INFO={"x":{"uio":{"mount":"/dev/uio0"}}}`}, want: "A_INFO:x{x=/dev/uio0}"},
		{name: "both", env: []string{"PCIDEVICE_A=y", "PCIDEVICE_A_INFO=x"}, want: "A:y A_INFO:x"},
		{name: "a resource that is called INFO", env: []string{"PCIDEVICE__INFO=x"}, want: "_INFO:x"},
		{name: "JSON that is broken", env: []string{"PCIDEVICE_A=x", `PCIDEVICE_A_INFO={"x":`}, want: "A:x", note: "PCIDEVICE_A_INFO is ignored"},
		{name: "JSON of another shape", env: []string{`PCIDEVICE_A_INFO={"x":[]}`}, note: "PCIDEVICE_A_INFO is ignored"},
		{name: "a key twice", env: []string{`PCIDEVICE_A_INFO={"x":{"uio":{"mount":"/dev/uio0","mount":"/dev/uio1"}}}`}, note: `1:34: found "mount": a key must occur only once`},
		{name: "an ID with a space", env: []string{"PCIDEVICE_A=a b", "PCIDEVICE_B=b"}, want: "B:b", note: "PCIDEVICE_A is ignored"},
		{name: "an empty ID", env: []string{"PCIDEVICE_A=a,,b"}, note: "PCIDEVICE_A is ignored"},
		{name: "an ID that is a path", env: []string{"PCIDEVICE_A=../../etc"}, want: "A:../../etc"},
		{name: "not UTF-8", env: []string{"PCIDEVICE_A=a\xff"}, note: "PCIDEVICE_A is ignored"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, notes := parseEnvironment(tc.env)
			var got []string
			for _, v := range e {
				s := v.key + ":" + strings.Join(v.ids, ",")
				for _, id := range v.ids {
					if d, ok := v.info[id]; ok {
						s += "{" + id + "=" + strings.Join(d.nodes, ",") + "}"
					}
				}
				got = append(got, s)
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("got %q, want %q", s, tc.want)
			}
			if (tc.note == "") != (len(notes) == 0) || !strings.Contains(strings.Join(notes, "\n"), tc.note) {
				t.Errorf("notes are %q, want one with %q", notes, tc.note)
			}
		})
	}
	if env := parseAll(t, "PCIDEVICE_A_INFO={\"0000:0A:00.0\":{\"rdma\":{\"rdma_dev\":\"mlx5_0\"}}}"); env[0].info["0000:0a:00.0"].rdma != "mlx5_0" {
		t.Errorf("an address in capitals: %+v", env)
	}
}

func parseAll(t *testing.T, env ...string) environment {
	t.Helper()
	e, notes := parseEnvironment(env)
	if len(notes) > 0 {
		t.Fatal(notes)
	}
	return e
}

func TestVariableKeyAndResourceAreInverse(t *testing.T) {
	for resource, want := range map[string]string{"intel.com/sriov_dpdk": "INTEL_COM_SRIOV_DPDK", "openshift.io/cnsbc-vfio-int": "OPENSHIFT_IO_CNSBC-VFIO-INT"} {
		if got := envKey(resource); got != want {
			t.Errorf("%s gives %s, want %s", resource, got, want)
		}
		if got := undashed(dashed(resource), want); got != resource {
			t.Errorf("%s becomes %q", resource, got)
		}
	}
}

func TestPCIAddressHasFullForm(t *testing.T) {
	for _, s := range []string{"0000:00:00.0", "0000:ff:1f.7", "10000:01:00.0", "FFFF:0A:1F.7", "abcdef01:00:00.0"} {
		if !isPCIAddress(s) {
			t.Errorf("%q is an address", s)
		}
	}
	for _, s := range []string{"", "00:00.0", "0000:02:01:6", "0000:00:20.0", "0000:00:00.8", "0000:00:00.a", "0000:0g:00.0", "0000:00:00.0 ", "123456789:00:00.0", "0000-00-00-0", "000:000:00.0"} {
		if isPCIAddress(s) {
			t.Errorf("%q is not an address", s)
		}
	}
}
