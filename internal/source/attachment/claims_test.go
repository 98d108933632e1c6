// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

const (
	pluginsDir = "/var/lib/kubelet/plugins"
	draDriver  = "d.example.com"
)

// metadataPath returns where the driver writes the metadata of a request.
func metadataPath(claim, request string) string {
	return pluginsDir + "/" + draDriver + "/dra-device-metadata/ns_" + claim + "/" + request + "/metadata.json"
}

// writeMetadata writes the metadata of a request as its driver does. Each device is NAME followed by
// the members of its JSON object.
func (n *node) writeMetadata(claim, request string, devices ...string) string {
	n.t.Helper()
	var list []string
	for _, d := range devices {
		name, members, more := strings.Cut(d, " ")
		d = fmt.Sprintf(`{"driver": %q, "pool": "node", "name": %q`, draDriver, name)
		if more {
			d += ", " + members
		}
		list = append(list, d+"}")
	}
	file := metadataPath(claim, request)
	n.write(file, fmt.Sprintf(`{"kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/v1beta1", "metadata": {"name": %q, "namespace": "ns"},
 "requests": [{"name": %q, "devices": [%s]}]}`, claim, request, strings.Join(list, ", ")))
	n.opts.PluginsDir = pluginsDir
	return file
}

// allocateClaims starts a kubelet that allocated devices of claims. A line has the form
// "c1: CLAIM=DEVICE CLAIM=DEVICE".
func (n *node) allocateClaims(lines ...string) {
	n.t.Helper()
	k := &fakeKubelet{}
	for _, line := range lines {
		name, devices, _ := strings.Cut(line, ":")
		c := allocation.Container{Name: name}
		for _, f := range strings.Fields(devices) {
			claim, device, _ := strings.Cut(f, "=")
			c.Claims = append(c.Claims, allocation.ClaimDevice{Namespace: "ns", Claim: claim, Driver: draDriver, Pool: "node", Device: device})
		}
		k.pod = append(k.pod, c)
	}
	n.useKubelet(k)
}

func pciAttribute(address string) string {
	return fmt.Sprintf(`"attributes": {"resource.kubernetes.io/pciBusID": {"string": %q}}`, address)
}

// claimQuery returns the query of container c1 with metadata of these requests mounted.
func (n *node) claimQuery(files ...string) Query {
	q := newQuery()
	for _, file := range files {
		q.MetadataFiles = append(q.MetadataFiles, n.path(file))
	}
	return q
}

// The driver's metadata says which PCI function a claim's device is, whatever the device is called.
func TestMetadataSaysWhichNetworkClaimIs(t *testing.T) {
	n := newNode(t)
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	file := n.writeMetadata("nics", "vf", `0000-03-00-3 `+pciAttribute(devA)+`, "networkData": {"interfaceName": "net1", "ips": ["192.0.2.5/24"], "hardwareAddress": "c2:11:22:33:44:55"}`)
	n.allocateClaims("c1: nics=0000-03-00-3", "c2:")
	f := n.newFinder()
	attached, allocated, err := f.Search(t.Context(), n.claimQuery(file)).Find()
	a := wantOneAttachment(t, attached, err)
	testkit.Must(t, a.Err)
	want := &ClaimedDevice{Namespace: "ns", Claim: "nics", Driver: draDriver, Pool: "node", Device: "0000-03-00-3", Request: "vf", File: file,
		IfName: "net1", IPs: []string{"192.0.2.5/24"}, MAC: "c2:11:22:33:44:55"}
	if a.Owner != OwnedHere || a.Device != devA || !reflect.DeepEqual(a.Claimed, want) {
		t.Errorf("got %+v with %+v, want %+v", a, a.Claimed, want)
	}
	if len(allocated) != 0 {
		t.Errorf("the network's device is found again: %+v", allocated)
	}
	q := newQuery()
	q.Container = "c2"
	a = wantOneAttachment(t, must(f.findNetworks(t.Context(), q)), nil)
	if a.Owner != OwnedElsewhere {
		t.Errorf("container c2: %+v", a)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestClaimWithoutNetworkIsAllocatedDevice(t *testing.T) {
	n := newNode(t)
	file := n.writeMetadata("nics", "vf", "dev-1 "+pciAttribute(devA), "dev-2 "+pciAttribute(devB))
	sock := n.writeMetadata("vsw", "port", `p0 "attributes": {"vhost-user-path": {"string": "/run/v/a.sock"}, "mtu": {"int": 1500}}`)
	plain := n.writeMetadata("vsw", "plain", `p1`)
	n.allocateClaims("c1: nics=dev-1 nics=dev-2 vsw=p0 vsw=p1 other=x", "c2: vsw=p0 vsw=p1")
	f := n.newFinder()
	as, err := f.findAllocated(t.Context(), n.claimQuery(file, sock, plain))
	testkit.Must(t, err)
	var got []string
	for _, a := range as {
		testkit.Must(t, a.Err)
		what := "nothing"
		if d, ok := deviceOf(a.Info); ok {
			what = d.String()
		} else if s, ok := socketOf(a.Info); ok {
			what = s.String()
		}
		got = append(got, fmt.Sprintf("%s: %s, mtu %d, %s", a.Claimed.Name(), what, a.Claimed.MTU, a.Owner))
	}
	want := []string{
		"nics/vf/1: PCI device " + devA + ", mtu 0, this container", "nics/vf/2: PCI device " + devB + ", mtu 0, this container",
		"vsw/plain: nothing, mtu 0, this container", `vsw/port: vhost-user server socket "/run/v/a.sock", mtu 1500, this container`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// The kubelet lists all devices of a claim. The metadata that the runtime mounted says which requests
	// the container uses.
	q := n.claimQuery(sock)
	q.Container = "c2"
	as, err = f.findAllocated(t.Context(), q)
	if a := wantOneAttachment(t, as, err); a.Claimed.Name() != "vsw/port" {
		t.Errorf("got %+v", a)
	}
	// Without a mount of metadata, and for a caller that wants no device, nobody asks the kubelet.
	calls := n.kubelet.countCalls()
	for _, q := range []Query{newQuery(), {Container: "c1", MetadataFiles: []string{file}, Wanted: func(*Attachment) bool { return false }}} {
		if as, err := f.findAllocated(t.Context(), q); err != nil || len(as) > 0 {
			t.Errorf("got %+v, %v", as, err)
		}
	}
	if n.kubelet.countCalls() != calls {
		t.Error("the kubelet was asked")
	}
}

// A claim's device belongs to the containers for which the kubelet lists it.
func TestOnlyKubeletDecidesWhoseClaimIs(t *testing.T) {
	n := newNode(t)
	file := n.writeMetadata("nics", "vf", "dev-1 "+pciAttribute(devA))
	n.allocateClaims("c1:", "c2: nics=dev-1")
	as, err := n.newFinder().findAllocated(t.Context(), n.claimQuery(file))
	if err != nil || len(as) > 0 {
		t.Errorf("container c1 has %+v, %v", as, err)
	}
	q := n.claimQuery(file, "/etc/passwd", "/var/lib/kubelet/plugins/../x")
	q.Container = "init"
	a := wantOneAttachment(t, must(n.newFinder().findAllocated(t.Context(), q)), nil)
	if a.Owner != OwnerUnknown || a.Info != nil || !hasNote(a, "init container") {
		t.Errorf("an init container: %+v", a)
	}
	n.kubelet.err = fmt.Errorf("out of order: %w", errdefs.ErrUnavailable)
	a = wantOneAttachment(t, must(n.newFinder().findAllocated(t.Context(), n.claimQuery(file))), nil)
	if !errdefs.IsUnavailable(a.Err) || !strings.Contains(a.Err.Error(), `"ns/nics"`) {
		t.Errorf("without an answer: %+v", a)
	}
}

func TestMetadataConflicts(t *testing.T) {
	for name, tc := range map[string]struct {
		network  string // PCI address of net1; "" for none
		metadata map[string][]string
		kubelet  string
		want     []string // names in the conflict
		attached bool     // the network has the conflict
	}{
		"a network's interface with another device": {network: devB, metadata: map[string][]string{"vf": {`dev-1 ` + pciAttribute(devA) + `, "networkData": {"interfaceName": "net1"}`}},
			want: []string{"which device net1 is", "_net1", devA, devB, metadataPath("nics", "vf")}, attached: true},
		"a network's device on another interface": {network: devA, metadata: map[string][]string{"vf": {`dev-1 ` + pciAttribute(devA) + `, "networkData": {"interfaceName": "net7"}`}},
			want: []string{"which interface PCI device " + devA, "net1", "net7", metadataPath("nics", "vf")}, attached: true},
		"a device that the kubelet did not allocate": {metadata: map[string][]string{"vf": {"dev-1 " + pciAttribute(devA), "dev-9 " + pciAttribute(devB)}},
			want: []string{`"ns/nics"`, `"dev-9"`, socket, metadataPath("nics", "vf")}},
		"two devices with one address": {kubelet: "c1: nics=dev-1 nics=dev-2", metadata: map[string][]string{"a": {"dev-1 " + pciAttribute(devA)}, "b": {"dev-2 " + pciAttribute(devA)}},
			want: []string{devA, metadataPath("nics", "a"), metadataPath("nics", "b")}},
		"two descriptions of one device": {metadata: map[string][]string{"a": {"dev-1 " + pciAttribute(devA)}, "b": {"dev-1 " + pciAttribute(devB)}},
			want: []string{`"dev-1"`, devA, devB, metadataPath("nics", "a"), metadataPath("nics", "b")}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if tc.network != "" {
				n.writeCNIFile("ns/net", "net1", pciInfo(tc.network))
			}
			var files []string
			for request, devices := range tc.metadata {
				files = append(files, n.writeMetadata("nics", request, devices...))
			}
			if tc.kubelet == "" {
				tc.kubelet = "c1: nics=dev-1"
			}
			n.allocateClaims(tc.kubelet)
			attached, allocated, err := n.newFinder().Search(t.Context(), n.claimQuery(files...)).Find()
			testkit.Must(t, err)
			if tc.attached {
				wantConflict(t, wantOneAttachment(t, attached, nil).Err, tc.want...)
				return
			}
			found := false
			for _, a := range allocated {
				if a.Err != nil {
					found = true
					wantConflict(t, a.Err, tc.want...)
				}
			}
			if !found {
				t.Errorf("no conflict in %+v", allocated)
			}
		})
	}
}

// The metadata of a claim, device-info and libcni's record must agree on the MAC, the addresses and the
// MTU of one device. A value that one of them lacks is no conflict.
func TestMetadataAgreesWithRecords(t *testing.T) {
	const (
		meta   = `"networkData": {"interfaceName": "net1", "ips": ["192.0.2.5/24", "2001:db8::5/64"], "hardwareAddress": "C2:11:22:33:44:55"}`
		socket = `"attributes": {"vhost-user-path": {"string": "/run/v/a.sock"}, "mtu": {"int": 9000}}`
	)
	pci, pciFile := pciAttribute(devA)+", "+meta, metadataPath("nics", "vf")
	result := func(ifName, members, ips string) string {
		return fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": %q, "ifName": "net1", "networkName": "net",
 "result": {"interfaces": [{"name": "net1", "mac": "02:00:00:00:00:99"}, {"name": %q, "sandbox": "/run/netns/x"%s}], "ips": [%s]}}`, sandbox, ifName, members, ips)
	}
	for name, tc := range map[string]struct {
		metadata, info string // info: value of jackfield.dev/interface
		device         string // of the network
		result         string // of libcni's record; "" for none
		want           []string
	}{
		"equal":                                 {metadata: pci, info: `{"mac": "c2:11:22:33:44:55", "ips": ["2001:db8:0::5/64", "192.0.2.5/24"]}`, result: result("net1", `, "mac": "c2:11:22:33:44:55"`, `{"address": "192.0.2.5/24", "interface": 1}`)},
		"values missing":                        {metadata: pciAttribute(devA), info: `{"mac": "c2:11:22:33:44:55", "mtu": 1500}`, result: result("net1", `, "mac": "c2:11:22:33:44:56"`, "")},
		"fewer addresses":                       {metadata: pci, info: `{"ips": ["192.0.2.5/24"]}`},
		"more addresses":                        {metadata: pci, info: `{"ips": ["192.0.2.5/24", "192.0.2.6/24", "2001:db8::5/64"]}`},
		"link-local addresses":                  {metadata: pciAttribute(devA) + `, "networkData": {"ips": ["fe80::1/64"]}`, info: `{"ips": ["2001:db8::5/64"]}`},
		"a MAC of zeros":                        {metadata: pci, result: result("net1", `, "mac": "00:00:00:00:00:00"`, "")},
		"a record of the interface on the host": {metadata: pci, result: result("veth7", `, "mac": "c2:11:22:33:44:56"`, "")},
		"another device":                        {metadata: pciAttribute(devB), info: `{"mac": "c2:11:22:33:44:56"}`},
		"MAC in device-info": {metadata: pci, info: `{"mac": "c2:11:22:33:44:56"}`,
			want: []string{"which MAC address PCI device " + devA, "_net1 says jackfield.dev/interface.mac c2:11:22:33:44:56", pciFile + " says networkData.hardwareAddress c2:11:22:33:44:55"}},
		"MAC in the record": {metadata: pci, result: result("net1", `, "mac": "c2:11:22:33:44:56"`, ""),
			want: []string{"results/net-" + sandbox + "-net1 says result.interfaces.mac c2:11:22:33:44:56", pciFile + " says networkData.hardwareAddress c2:11:22:33:44:55"}},
		"address in the record": {metadata: pci, result: result("net1", "", `{"address": "192.0.2.6/24", "interface": 1}`),
			want: []string{"which addresses", `result.ips ["192.0.2.6/24"]`, `networkData.ips ["192.0.2.5/24" "2001:db8::5/64"]`}},
		"prefix length":         {metadata: pci, info: `{"ips": ["192.0.2.5/25"]}`, want: []string{"which addresses", "jackfield.dev/interface.ips"}},
		"IPv6 address":          {metadata: pci, info: `{"ips": ["192.0.2.5/24", "2001:db8::6/64"]}`, want: []string{"which addresses"}},
		"MTU in device-info":    {device: vhostUserInfo("server", "/run/v/a.sock"), metadata: socket, info: `{"mtu": 1500}`, want: []string{`which MTU socket "/run/v/a.sock"`, "jackfield.dev/interface.mtu 1500", "attribute mtu 9000"}},
		"MTU in the record":     {device: vhostUserInfo("server", "/run/v/a.sock"), metadata: socket, result: result("net1", `, "mtu": 1500`, ""), want: []string{"result.interfaces.mtu 1500", "attribute mtu 9000"}},
		"interface of a socket": {device: vhostUserInfo("server", "/run/v/a.sock"), metadata: socket + `, "networkData": {"interfaceName": "net7"}`, want: []string{"which interface", "net1", "net7"}},
		"another socket":        {device: vhostUserInfo("server", "/run/v/b.sock"), metadata: socket, info: `{"mtu": 1500}`},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			info := tc.device
			if info == "" {
				info = pciInfo(devA)
			}
			if tc.info != "" {
				info = strings.TrimSuffix(info, "}") + `, "jackfield.dev/interface": ` + tc.info + "}"
			}
			n.writeCNIFile("ns/net", "net1", info)
			if tc.result != "" {
				n.write(multusDir+"/results/net-"+sandbox+"-net1", tc.result)
			}
			file := n.writeMetadata("nics", "vf", "dev-1 "+tc.metadata)
			n.allocateClaims("c1: nics=dev-1")
			attached, _, err := n.newFinder().Search(t.Context(), n.claimQuery(file)).Find()
			a := wantOneAttachment(t, attached, err)
			if tc.want == nil {
				testkit.Must(t, a.Err)
				return
			}
			wantConflict(t, a.Err, tc.want...)
		})
	}
}

// Two requests that describe one device must agree, too.
func TestMetadataOfTwoRequestsAgrees(t *testing.T) {
	n := newNode(t)
	a := n.writeMetadata("nics", "a", `dev-1 "networkData": {"hardwareAddress": "c2:11:22:33:44:55"}`)
	b := n.writeMetadata("nics", "b", `dev-1 "networkData": {"hardwareAddress": "c2:11:22:33:44:56"}`)
	n.allocateClaims("c1: nics=dev-1")
	as, err := n.newFinder().findAllocated(t.Context(), n.claimQuery(a, b))
	wantConflict(t, wantOneAttachment(t, as, err).Err, a, "c2:11:22:33:44:55", b, "c2:11:22:33:44:56")
}

// Metadata that cannot be read is an error of its own devices, and names nobody else's.
func TestFaultyMetadataIsErrorOfItsDevices(t *testing.T) {
	n := newNode(t)
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	good := n.writeMetadata("nics", "good", "dev-1 "+pciAttribute(devB))
	bad := n.writeMetadata("nics", "bad", "0000-03-00-2")
	n.write(bad, "{")
	n.allocateClaims("c1: nics=dev-1 nics=0000-03-00-2")
	attached, allocated, err := n.newFinder().Search(t.Context(), n.claimQuery(good, bad)).Find()
	testkit.Must(t, err)
	// The device's name looks like the network's function, and the file that says so is unreadable.
	if a := wantOneAttachment(t, attached, nil); a.Err == nil || !strings.Contains(a.Err.Error(), bad) {
		t.Errorf("the network: %+v", a)
	}
	for _, a := range allocated {
		switch {
		case a.Claimed.Device == "dev-1" && a.Err == nil:
		case a.Claimed.Device == "0000-03-00-2" && a.Err != nil && strings.Contains(a.Err.Error(), bad+":1:2"):
		default:
			t.Errorf("got %+v", a)
		}
	}
	if len(allocated) != 2 {
		t.Errorf("got %d devices", len(allocated))
	}
}

func TestMetadataMountIsKnownByDestination(t *testing.T) {
	for destination, want := range map[string]bool{
		"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/r/d-metadata.json":         true,
		"/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/c/r/d-metadata.json": true,
		"/run/kubernetes.io/dra-device-attributes/resourceclaims/c/r/d-metadata.json":             true,
		"/var/run/kubernetes.io/dra-device-attributes":                                            false,
		"/var/run/secrets/kubernetes.io/serviceaccount":                                           false,
		"": false,
	} {
		if got := IsMetadataMount(destination); got != want {
			t.Errorf("%q: %v", destination, got)
		}
	}
}
