// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func request(key, text string, position int) Request {
	return Request{Key: key, Item: text, Position: position}
}

func optional(r Request) Request {
	r.Optional = true
	return r
}

func cdi(r Request, vendor, class, name string) Device {
	return Device{Request: r, Kind: CDI, Name: vendor + "/" + class + "=" + name}
}

func TestDevicesAnnotationIsRead(t *testing.T) {
	const key = DevicesKey
	net0 := cdi(request(key, "vendor.com/net=vf0", 1), "vendor.com", "net", "vf0")
	for _, tc := range []struct {
		name, value string
		want        []Device
	}{
		{"one", "vendor.com/net=vf0", []Device{net0}},
		{"spaces and line ends", " vendor.com/net=vf0\t\r\n", []Device{net0}},
		{"comma list", "vendor.com/net=vf0, nvidia=all ,resource:intel.com/sriov", []Device{
			net0,
			{Request: request(key, "nvidia=all", 2), Kind: Alias, Name: "nvidia=all"},
			{Request: request(key, "resource:intel.com/sriov", 3), Kind: Resource, Name: "intel.com/sriov"},
		}},
		{"all of a class", "vendor.com/net=all", []Device{cdi(request(key, "vendor.com/net=all", 1), "vendor.com", "net", "all")}},
		{"odd but valid CDI names", "v/c=1,a-b.c_d/e.f=0:1.2-x_y", []Device{
			cdi(request(key, "v/c=1", 1), "v", "c", "1"),
			cdi(request(key, "a-b.c_d/e.f=0:1.2-x_y", 2), "a-b.c_d", "e.f", "0:1.2-x_y"),
		}},
		{"resource with ID", "resource:intel.com/sriov/0000:3b:00.2", []Device{
			{Request: request(key, "resource:intel.com/sriov/0000:3b:00.2", 1), Kind: Resource, Name: "intel.com/sriov", ID: "0000:3b:00.2"},
		}},
		{"resource whose ID has slashes", "resource:example.com/x/a/b", []Device{
			{Request: request(key, "resource:example.com/x/a/b", 1), Kind: Resource, Name: "example.com/x", ID: "a/b"},
		}},
		{"named socket", "socket:spire-agent", []Device{
			{Request: request(key, "socket:spire-agent", 1), Kind: NamedSocket, Name: "spire-agent"},
		}},
		{"named sockets as objects", `[{device: "socket:db", optional: true}, socket:db, {"device": "socket:7"}]`, []Device{
			{Request: request(key, "socket:db", 2), Kind: NamedSocket, Name: "db"},
			{Request: request(key, "socket:7", 3), Kind: NamedSocket, Name: "7"},
		}},
		{"JSON list", `["vendor.com/net=vf0"]`, []Device{net0}},
		{"JSON with tabs", "[\n\t\"vendor.com/net=vf0\"\n]", []Device{net0}},
		{"YAML flow list", `[vendor.com/net=vf0]`, []Device{net0}},
		{"YAML block list", "# what it needs\n- vendor.com/net=vf0\n- nvidia=0 # a card\n", []Device{
			net0,
			{Request: request(key, "nvidia=0", 2), Kind: Alias, Name: "nvidia=0"},
		}},
		{"objects", "- device: vendor.com/net=vf0\n- {device: nvidia=0, optional: true}\n- {optional: false, device: \"nvidia=1\"}\n", []Device{
			net0,
			{Request: optional(request(key, "nvidia=0", 2)), Kind: Alias, Name: "nvidia=0"},
			{Request: request(key, "nvidia=1", 3), Kind: Alias, Name: "nvidia=1"},
		}},
		{"JSON objects", `[{"device":"vendor.com/net=vf0","optional":false}]`, []Device{net0}},
		{"named twice", "vendor.com/net=vf0,nvidia=0,vendor.com/net=vf0", []Device{
			net0,
			{Request: request(key, "nvidia=0", 2), Kind: Alias, Name: "nvidia=0"},
		}},
		{"optional and required is required", "[{device: vendor.com/net=vf0, optional: true}, {device: nvidia=0, optional: true}, vendor.com/net=vf0]", []Device{
			cdi(request(key, "vendor.com/net=vf0", 3), "vendor.com", "net", "vf0"),
			{Request: optional(request(key, "nvidia=0", 2)), Kind: Alias, Name: "nvidia=0"},
		}},
		{"required and optional is required", "[vendor.com/net=vf0, {device: vendor.com/net=vf0, optional: true}]", []Device{net0}},
		{"none", "none", nil},
		{"empty list", "[]", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Parse(map[string]string{key: tc.value, "other.example/key": "x"}, "app")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(Requests{Devices: tc.want}, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

func TestNetworksAnnotationIsRead(t *testing.T) {
	const key = NetworksKey
	long := strings.Repeat("a", 64) // Kubernetes bounds the whole of a name, and not its parts
	for _, tc := range []struct {
		value string
		want  Networks
	}{
		{"auto", Networks{Key: key}},
		{" auto\n", Networks{Key: key}},
		{"none", Networks{Mode: NetworksNone, Key: key}},
		{"[]", Networks{Mode: NetworksNone, Key: key}},
		{"net1", Networks{Mode: NetworksListed, Key: key, Items: []Network{
			{Request: request(key, "net1", 1), Name: "net1", Interface: "net1"}}}},
		{"tenant/fast, a-network-of-a-long-name,Eth_0", Networks{Mode: NetworksListed, Key: key, Items: []Network{
			{Request: request(key, "tenant/fast", 1), Namespace: "tenant", Name: "fast"},
			{Request: request(key, "a-network-of-a-long-name", 2), Name: "a-network-of-a-long-name"},
			{Request: request(key, "Eth_0", 3), Interface: "Eth_0"}}}},
		{"[{network: net1}, {interface: net1, optional: true}, {network: auto}, 1e3]", Networks{Mode: NetworksListed, Key: key, Items: []Network{
			{Request: request(key, "net1", 1), Name: "net1"},
			{Request: optional(request(key, "net1", 2)), Interface: "net1"},
			{Request: request(key, "auto", 3), Name: "auto"},
			{Request: request(key, "1e3", 4), Name: "1e3", Interface: "1e3"}}}},
		{"[{network: a/b, optional: true}, a/b, a/b]", Networks{Mode: NetworksListed, Key: key, Items: []Network{
			{Request: request(key, "a/b", 2), Namespace: "a", Name: "b"}}}},
		{"a/" + long, Networks{Mode: NetworksListed, Key: key, Items: []Network{
			{Request: request(key, "a/"+long, 1), Namespace: "a", Name: long}}}},
	} {
		t.Run(tc.value, func(t *testing.T) {
			got, err := Parse(map[string]string{key: tc.value}, "app")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(Requests{Networks: tc.want}, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

func TestParseCDIAnnotations(t *testing.T) {
	got, err := Parse(map[string]string{
		"cdi.k8s.io/zz_1":       "vendor.com/net=b,vendor.com/net=a",
		"cdi.k8s.io/vendor.gpu": "vendor.com/gpu=0",
		"cdi.k8s.io/a":          "vendor.com/net=b",
		DevicesKey:              "[{device: vendor.com/net=a, optional: true}]",
	}, "app")
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{
		cdi(request("cdi.k8s.io/zz_1", "vendor.com/net=a", 2), "vendor.com", "net", "a"),
		cdi(request("cdi.k8s.io/a", "vendor.com/net=b", 1), "vendor.com", "net", "b"),
		cdi(request("cdi.k8s.io/vendor.gpu", "vendor.com/gpu=0", 1), "vendor.com", "gpu", "0"),
	}
	if d := cmp.Diff(want, got.Devices); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// Only the most specific form of an annotation applies: the container's before the pod's.
func TestEffectiveAnnotation(t *testing.T) {
	all := map[string]string{
		DevicesKey:                     "v/c=pod1",
		DevicesKey + "/pod":            "v/c=pod2",
		DevicesKey + "/container.app":  "v/c=app",
		DevicesKey + "/container.off":  "none",
		DevicesKey + "/container.bad":  "?",
		NetworksKey + "/container.app": "none",
	}
	without := func(keys ...string) map[string]string {
		m := make(map[string]string)
		for k, v := range all {
			m[k] = v
		}
		for _, k := range keys {
			delete(m, k)
		}
		return m
	}
	for _, tc := range []struct {
		annotations map[string]string
		container   string
		key, item   string
		mode        NetworkMode
	}{
		{all, "app", DevicesKey + "/container.app", "v/c=app", NetworksNone},
		{all, "other", DevicesKey + "/pod", "v/c=pod2", NetworksAuto},
		{map[string]string{DevicesKey: "v/c=a"}, "", DevicesKey, "v/c=a", NetworksAuto},
		{all, "off", "", "", NetworksAuto},
		{without(DevicesKey + "/pod"), "other", DevicesKey, "v/c=pod1", NetworksAuto},
		{without(DevicesKey+"/pod", DevicesKey), "other", "", "", NetworksAuto},
		{without(DevicesKey + "/container.app"), "app", DevicesKey + "/pod", "v/c=pod2", NetworksNone},
	} {
		got, err := Parse(tc.annotations, tc.container)
		if err != nil {
			t.Errorf("%q: %v", tc.container, err)
			continue
		}
		var key, item string
		if len(got.Devices) > 0 {
			key, item = got.Devices[0].Key, got.Devices[0].Item
		}
		if key != tc.key || item != tc.item || got.Networks.Mode != tc.mode || len(got.Devices) > 1 {
			t.Errorf("%q: got %+v", tc.container, got)
		}
	}
	if _, err := Parse(all, "bad"); err == nil {
		t.Error("the container's own annotation is ignored")
	}
}

func TestHasAnyFindsAnnotationsOfJackfieldOnly(t *testing.T) {
	common := map[string]string{
		"kubernetes.io/config.source": "api", "k8s.v1.cni.cncf.io/networks": "net1", "cdi.k8s.iox/a": "b",
		"notjackfield.dev": "x", "example.com/devices.jackfield.dev": "x", "jackfield.device": "x",
	}
	if HasAny(common) || HasAny(nil) {
		t.Error("found an annotation of Jackfield")
	}
	if n := testing.AllocsPerRun(100, func() { HasAny(common) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for _, key := range []string{DevicesKey, DevicesKey + "/pod", NetworksKey + "/container.x", "cdi.k8s.io/a", "device.jackfield.dev", "jackfield.dev/x", "Devices.Jackfield.Dev"} {
		if !HasAny(map[string]string{"a": "b", key: "x"}) {
			t.Errorf("%s is ignored", key)
		}
	}
	// HasAny sees whatever Parse parses.
	if got, err := Parse(common, "app"); err != nil || len(got.Devices) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParseIsDeterministic(t *testing.T) {
	annotations := make(map[string]string)
	for i := range 40 {
		annotations[fmt.Sprintf("cdi.k8s.io/k%d", i)] = fmt.Sprintf("v/c=%d,v/c=%d", i, (i+7)%40)
	}
	bad := map[string]string{"a.jackfield.dev": "", "b.jackfield.dev": "", "c.jackfield.dev": "", "d.jackfield.dev/x": ""}
	first, err := Parse(annotations, "app")
	if err != nil {
		t.Fatal(err)
	}
	_, firstErr := Parse(bad, "app")
	for range 50 {
		again, err := Parse(annotations, "app")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(first, again); d != "" {
			t.Fatalf("-first +again\n%s", d)
		}
		if _, err := Parse(bad, "app"); err == nil || err.Error() != firstErr.Error() {
			t.Fatalf("%v, then %v", firstErr, err)
		}
	}
}

func TestAliasesExpandToQualifiedNames(t *testing.T) {
	aliases := map[string]string{"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
	asked, err := Parse(map[string]string{DevicesKey: "[{device: nvidia=0, optional: true}, amd=1, nvidia.com/gpu=0]", NetworksKey: "none"}, "app")
	if err != nil {
		t.Fatal(err)
	}
	got, err := asked.ExpandAliases(aliases)
	if err != nil {
		t.Fatal(err)
	}
	want := Requests{
		Devices: []Device{
			cdi(request(DevicesKey, "nvidia.com/gpu=0", 3), "nvidia.com", "gpu", "0"),
			cdi(request(DevicesKey, "amd=1", 2), "amd.com", "gpu", "1"),
		},
		Networks: Networks{Mode: NetworksNone, Key: NetworksKey},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if len(asked.Devices) != 3 || asked.Devices[0].Kind != Alias {
		t.Error("the original changed")
	}
	asked.Devices = append(asked.Devices, Device{Request: request(DevicesKey, "intel=0", 4), Kind: Alias, Name: "intel=0"})
	_, err = asked.ExpandAliases(aliases)
	if want := `parse annotation "devices.jackfield.dev": item 4, "intel=0": the node's configuration has no alias "intel"; it has amd, nvidia; write vendor.com/class=name, or add it to cdi.aliases`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	misspelt := Requests{Devices: []Device{{Request: request(DevicesKey, "nivdia=0", 1), Kind: Alias, Name: "nivdia=0"}}}
	_, err = misspelt.ExpandAliases(aliases)
	if want := `parse annotation "devices.jackfield.dev": item 1, "nivdia=0": the node's configuration has no alias "nivdia"; it has amd, nvidia; did you mean nvidia=0?`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestDeviceNameHasKindAndParts(t *testing.T) {
	for text, want := range map[string]Device{
		"vendor.com/net=vf0": {Kind: CDI, Name: "vendor.com/net=vf0"},
		"nvidia=0":           {Kind: Alias, Name: "nvidia=0"},
		"resource:a.b/c":     {Kind: Resource, Name: "a.b/c"},
		"resource:a.b/c/d/e": {Kind: Resource, Name: "a.b/c", ID: "d/e"},
		"socket:spire":       {Kind: NamedSocket, Name: "spire"},
	} {
		d, err := parseDevice(Request{Item: text})
		want.Item = text
		if err != nil || d != want {
			t.Errorf("%q: %+v, %v", text, d, err)
		}
	}
	if _, err := Parse(map[string]string{DevicesKey: "nvidia"}, ""); err == nil || err.Error() != `parse annotation "devices.jackfield.dev": item 1, "nvidia": must be vendor.com/class=name, alias=name, resource:NAME[/ID] or socket:NAME` {
		t.Errorf("got %v", err)
	}
}

func TestNetworkIsSelectedByNameOrInterface(t *testing.T) {
	for _, tc := range []struct {
		n              Network
		network, iface string
		want           bool
	}{
		{Network{Name: "net1", Interface: "net1"}, "me/other", "net1", true},
		{Network{Name: "net1", Interface: "net1"}, "me/net1", "net7", true},
		{Network{Name: "net1", Interface: "net1"}, "you/net1", "net7", false},
		{Network{Name: "net1"}, "me/other", "net1", false},
		{Network{Interface: "net1"}, "me/net1", "net2", false},
		{Network{Namespace: "you", Name: "fast"}, "you/fast", "net1", true},
		{Network{Namespace: "you", Name: "fast"}, "me/fast", "net1", false},
		{Network{Namespace: "you", Name: "fast"}, "you-fast", "net1", true}, // as Multus' file names have it
		{Network{Namespace: "you", Name: "fast"}, "you-faster", "net1", false},
		{Network{Namespace: "you", Name: "fast"}, "fast", "net1", false},
		{Network{Name: "fast"}, "me-fast", "net1", true},
		{Network{Name: "fast"}, "fast", "net1", true},
		{Network{Name: "fast"}, "", "net1", false},
		{Network{}, "", "", false},
	} {
		if got := tc.n.Selects("me", tc.network, tc.iface); got != tc.want {
			t.Errorf("%+v on %s at %s: %v", tc.n, tc.network, tc.iface, got)
		}
	}
}

// A container whose name the runtime does not report may be the one that an annotation names. Each kind of key refuses it.
func TestUnknownNameRefusesAnnotationOfContainer(t *testing.T) {
	for _, key := range []string{DevicesKey, NetworksKey, "devices.nri.io", "mounts.noderesource.dev", "cdi-devices.noderesource.dev"} {
		key += "/container.app"
		annotations := map[string]string{key: "x", DevicesKey + "/pod": "v/c=a"}
		_, err := Parse(annotations, "")
		_, injectorErr := ParseInjector(annotations, "")
		for _, err := range []error{err, injectorErr} {
			var typed *Error
			if !errors.As(err, &typed) || typed.Key != key || !strings.Contains(typed.Rule, "reports no name") {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}
