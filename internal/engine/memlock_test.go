// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
	"github.com/jackfield/jackfield/pkg/devices"
)

// memlockRules has two rules for the same containers, with the limits of the test.
const memlockRules = `
compat: {deviceInjector: true}
policy:
  rules:
    - name: vfio
      for: {namespaces: [ns]}
      allow: {devices: ["/dev/vfio/**", "/dev/iommu"]}
      limits: {VFIO}
    - name: others
      for: {namespaces: [ns]}
      allow: {devices: ["/dev/vhost-*", "/dev/net/tun", "/dev/infiniband/*", "/dev/a"], cdi: ["vendor.com/net=*"]}
      limits: {OTHERS}
`

// newMemlockHost returns a host with a device of each kind, each allocated to the container.
func newMemlockHost(t *testing.T, vfio, others string) (*host, *Request) {
	t.Helper()
	h, tree, r := newVFIOHost(t, `"/dev/none"`)
	skipWithoutMknod(t, errors.Join(
		tree.AddVDPA("vdpa0", "vhost_vdpa", "", 0, sysfstest.Dev{Major: 511, Minor: 0}),
		tree.AddPCI("0000:04:00.0", "mlx5_core", sysfstest.NoGroup), tree.AddVhostNet(sysfstest.Zero(), sysfstest.Null()),
		tree.AddRDMA("0000:04:00.0", "mlx5_0", 0, sysfstest.Null(), sysfstest.Zero()),
		tree.Link("/sys/dev/char/511:0", "/sys/devices/virtual/vdpa0/vhost-vdpa-0")))
	h.replaceConfig(strings.NewReplacer("VFIO", vfio, "OTHERS", others).Replace(memlockRules))
	return h, r
}

// memlockInfo is the device-info of a device of each kind.
var memlockInfo = map[string]string{
	"vfio":      `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.1"}}`,
	"vdpa":      `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa0","driver":"vhost","path":"/dev/vhost-vdpa-0"}}`,
	"rdma":      `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:04:00.0","rdma-device":"mlx5_0"}}`,
	"vhost-net": `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:04:00.0","vhost-net":"/dev/vhost-net"}}`,
}

var memlockEnv = map[string]string{"vfio": "0000:03:00.1", "vdpa": "vdpa0", "rdma": "0000:04:00.0", "vhost-net": "0000:04:00.0"}

func planMemlock(p *Plan) string {
	if p.Set.Memlock == nil {
		return ""
	}
	return p.Set.Memlock.Soft.String() + "/" + p.Set.Memlock.Hard.String()
}

func TestDeviceThatPinsMemoryBringsLimitOfItsRule(t *testing.T) {
	const rule, otherRule = "memlock: 2Gi", "memlock: unlimited"
	for name, c := range map[string]struct{ vfio, others, want string }{
		"vfio":      {rule, otherRule, "2Gi/2Gi"},
		"vdpa":      {rule, otherRule, "unlimited/unlimited"},
		"rdma":      {rule, otherRule, "unlimited/unlimited"},
		"vhost-net": {rule, otherRule, ""},
	} {
		h, r := newMemlockHost(t, c.vfio, c.others)
		h.writeInfo("one", "net1", memlockInfo[name])
		r.Have.Env = []string{"PCIDEVICE_VENDOR_COM_VF=" + memlockEnv[name]}
		p := h.resolve(r)
		if got := planMemlock(p); got != c.want {
			t.Errorf("%s: limit %q, want %q", name, got, c.want)
		}
		if m := p.Set.Memlock; m != nil && (m.Origin.Request != p.Items[0].Request || m.Origin.Rule == "" || m.Origin.File == "") {
			t.Errorf("%s: origin %+v", name, m.Origin)
		}
		var view []devices.Device
		testkit.Must(t, json.Unmarshal(p.Staging.Files[0].Data, &view))
		if soft, _, _ := strings.Cut(c.want, "/"); view[0].Jackfield.Memlock != soft {
			t.Errorf("%s: devices.json has %q", name, view[0].Jackfield.Memlock)
		}
	}
}

// Without the key no limit changes, whatever the devices are.
func TestRuleWithoutMemlockChangesNoLimit(t *testing.T) {
	h, r := newMemlockHost(t, "container: {cdi: 1}", "container: {cdi: 1}")
	h.writeInfo("one", "net1", memlockInfo["vfio"])
	if got := planMemlock(h.resolve(r)); got != "" {
		t.Errorf("limit %q", got)
	}
}

func TestLargestLimitOfSeveralRulesCounts(t *testing.T) {
	for _, c := range []struct{ vfio, others, want string }{{"1Gi", "2Gi", "2Gi/2Gi"}, {"2Gi", "1Gi", "2Gi/2Gi"}, {"1Gi", "unlimited", "unlimited/unlimited"}} {
		h, r := newMemlockHost(t, "memlock: "+c.vfio, "memlock: "+c.others)
		h.writeInfo("one", "net1", memlockInfo["vfio"])
		h.writeInfo("two", "net2", memlockInfo["vdpa"])
		r.Have.Env = []string{"PCIDEVICE_VENDOR_COM_VF=0000:03:00.1", "PCIDEVICE_VENDOR_COM_VDPA=vdpa0"}
		if got := planMemlock(h.resolve(r)); got != c.want {
			t.Errorf("%+v: limit %q", c, got)
		}
	}
}

// The container keeps a limit that it has, from its configuration or from the runtime.
func TestLimitIsNeverLowered(t *testing.T) {
	limit := func(soft, hard quantity.Memory) *edit.Rlimit { return &edit.Rlimit{Soft: soft << 20, Hard: hard << 20} }
	for _, c := range []struct {
		have, inherited *edit.Rlimit
		want            string
	}{
		{nil, nil, "2Gi/2Gi"},
		{limit(8, 8), nil, "2Gi/2Gi"},
		{limit(8, 4096), nil, "2Gi/4Gi"},
		{limit(2048, 2048), nil, ""},
		{limit(4096, 8192), nil, ""},
		{&edit.Rlimit{Soft: quantity.Unlimited, Hard: quantity.Unlimited}, nil, ""},
		{nil, limit(8, 8), "2Gi/2Gi"},
		{limit(8, 8), limit(4096, 8192), "2Gi/2Gi"},
		{nil, limit(8, 4096), "2Gi/4Gi"},
		{nil, limit(4096, 8192), "4Gi/8Gi"},
		{nil, &edit.Rlimit{Soft: quantity.Unlimited, Hard: quantity.Unlimited}, "unlimited/unlimited"},
	} {
		h, r := newMemlockHost(t, "memlock: 2Gi", "memlock: 1Gi")
		h.writeInfo("one", "net1", memlockInfo["vfio"])
		r.Have.Memlock, r.InheritedMemlock = c.have, func() *edit.Rlimit { return c.inherited }
		if got := planMemlock(h.resolve(r)); got != c.want {
			t.Errorf("have %v, inherited %v: limit %q, want %q", c.have, c.inherited, got, c.want)
		}
	}
}

// A device plugin has the runtime add the nodes itself. The rule that would grant them sets the limit.
func TestNodesOfDevicePluginBringLimit(t *testing.T) {
	for namespace, want := range map[string]string{"ns": "2Gi/2Gi", "other": ""} {
		h, r := newMemlockHost(t, "memlock: 2Gi", "memlock: 1Gi")
		h.writeInfo("one", "net1", memlockInfo["vfio"])
		for path, minor := range map[string]int64{"/dev/vfio/11": 3, "/dev/vfio/vfio": 5} {
			r.Have.Devices = append(r.Have.Devices, edit.Device{Path: path, Type: "c", Major: 1, Minor: minor})
		}
		r.Annotations = map[string]string{"networks.jackfield.dev": "net1"}
		r.Namespace = namespace
		testkit.Must(t, os.Rename(filepath.Join(h.dir, "run/k8s.cni.cncf.io/devinfo/cni/ns-one-sb_net1"),
			filepath.Join(h.dir, "run/k8s.cni.cncf.io/devinfo/cni/"+namespace+"-one-sb_net1")))
		if got := planMemlock(h.resolve(r)); got != want {
			t.Errorf("%s: limit %q, want %q", namespace, got, want)
		}
	}
}

// Nodes of CDI files and of annotations are recognized by their numbers.
func TestNodesOfFilesAndAnnotationsBringLimit(t *testing.T) {
	h, _ := newMemlockHost(t, "memlock: 2Gi", "memlock: 1Gi")
	h.write("/etc/cdi/v.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[
  {"name":"a","containerEdits":{"deviceNodes":[{"path":"/dev/a","hostPath":"/dev/vhost-vdpa-0"}]}},
  {"name":"b","containerEdits":{"deviceNodes":[{"path":"/dev/b","type":"c","major":1,"minor":3}]}}]}`)
	injector := newRequest("")
	injector.Annotations = map[string]string{"devices.noderesource.dev/pod": "- {path: /dev/vhost-vdpa-0, type: c, major: 511, minor: 0}"}
	for name, c := range map[string]struct {
		r    *Request
		want string
	}{"cdi": {newRequest("vendor.com/net=a"), "1Gi/1Gi"}, "other cdi": {newRequest("vendor.com/net=b"), ""}, "injector": {injector, "1Gi/1Gi"}} {
		if got := planMemlock(h.resolve(c.r)); got != c.want {
			t.Errorf("%s: limit %q, want %q", name, got, c.want)
		}
	}
}

// An adapter that cannot set the limit delivers the device, and the request has a note.
func TestLimitThatCannotBeSetIsNoted(t *testing.T) {
	h, r := newMemlockHost(t, "memlock: 2Gi", "memlock: 1Gi")
	h.writeInfo("one", "net1", memlockInfo["vfio"])
	r.LimitMemlock = func(quantity.Memory) (quantity.Memory, string) { return 0, "too old" }
	p := h.resolve(r)
	if p.Set.Memlock != nil || len(p.Set.Devices) == 0 || !strings.Contains(strings.Join(p.Items[0].Notes, "\n"), `limits.memlock 2Gi of rule "vfio": too old`) {
		t.Errorf("%+v", p.Items[0])
	}
}

// A running container keeps the limit in its devices.json.
func TestViewOfRunningContainerKeepsLimit(t *testing.T) {
	h, r := newMemlockHost(t, "memlock: 2Gi", "memlock: 1Gi")
	h.writeInfo("one", "net1", memlockInfo["vfio"])
	p := h.resolve(r)
	h.write(filepath.Join(edit.ContainerDir(h.e.cfg.StateDir, r.ContainerID), ViewFile), string(p.Staging.Files[0].Data))
	r.Have.Devices = p.Set.Devices
	running, err := h.e.ResolveRunning(t.Context(), r)
	testkit.Must(t, err)
	if !strings.Contains(string(running.Staging.Files[0].Data), `"memlock": "2Gi"`) {
		t.Errorf("%s", running.Staging.Files[0].Data)
	}
}
