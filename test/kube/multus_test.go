// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	vswitchport "github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/ovs"
	"github.com/jackfield/jackfield/test/vswitch"
)

const networksKey = "k8s.v1.cni.cncf.io/networks"

// waitNetwork waits until the runtime attaches pods to a network.
func (k *K) waitNetwork(name string) {
	k.t.Helper()
	runtime := k.runtime()
	k.Wait("the runtime uses the network "+name, func() error {
		reply, err := runtime.Status(k.ctx, &cri.StatusRequest{Verbose: true})
		if config := reply.GetInfo()["cniconfig"]; err == nil && !strings.Contains(config, `"Name":"`+name+`"`) {
			err = errors.New(config)
		}
		return err
	})
}

// installMultus makes Multus the cluster's network until the test ends.
func (k *K) installMultus(mode cluster.MultusMode) {
	k.t.Helper()
	m, err := k.InstallMultus(k.ctx, mode)
	k.t.Cleanup(func() {
		if k.t.Failed() {
			k.t.Logf("Multus' daemon logged:\n%s", node.Tail(m.DaemonLog(), 60))
		}
		if err := m.Unconfigure(k.ctx); err != nil {
			k.t.Error(err)
		}
		k.waitNetwork("pods")
		if err := m.Remove(k.ctx); err != nil {
			k.t.Errorf("clean up: %v", err)
		}
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.waitNetwork(cluster.MultusNetwork)
}

// defineNetwork creates a NetworkAttachmentDefinition; resource may be "".
func (k *K) defineNetwork(namespace, name, resource, config string) {
	k.t.Helper()
	k.Create(object(map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": map[string]any{
		"name": name, "namespace": namespace, "annotations": map[string]string{"k8s.v1.cni.cncf.io/resourceName": resource}},
		"spec": map[string]any{"config": config}}))
}

// netAttachment is an element of devices.json, or of the annotation network-status.
type netAttachment struct {
	Name, Interface string
	IPs             []string
	DeviceInfo      struct {
		Type      string
		VhostUser struct{ Mode, Path string } `json:"vhost-user"`
	} `json:"device-info"`
	Jackfield struct {
		Resource string
		DeviceID string `json:"device-id"`
		OwnPath  string `json:"own-path"`
	}
}

// checkNetworks checks the networks of the pod "router", and returns the ports of its networks net1 and fast0.
func (k *K) checkNetworks(namespace string) []string {
	k.t.Helper()
	var ports []string
	for _, container := range []string{"main", "second"} {
		ports = append(ports, strings.TrimSpace(k.Kubectl("--namespace", namespace, "exec", "router", "--container", container, "--", "sh", "-c", "echo $ACME_PORT")))
	}
	slices.Sort(ports) // as Multus does, whatever container has them
	for _, container := range []string{"main", "second"} {
		out := k.Kubectl("--namespace", namespace, "exec", "router", "--container", container, "--", "sh", "-c",
			"cat $JACKFIELD_DEVICES_FILE; echo end; for s in $JACKFIELD_NET1_SOCKET $JACKFIELD_FAST0_SOCKET $JACKFIELD_NET3_SOCKET; do sockclient connect $s; done; ip addr show net3")
		text, rest, _ := strings.Cut(out, "end\n")
		var list []netAttachment
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			k.t.Fatalf("%v: %s", err, text)
		}
		var got []string
		for _, a := range list {
			got = append(got, strings.Join([]string{a.Interface, a.Name, a.Jackfield.Resource, a.Jackfield.DeviceID, a.Jackfield.OwnPath}, " "))
		}
		slices.Sort(got)
		want := []string{"eth0 pods   " + portSocket, "fast0 " + namespace + "/ports " + portResource + " " + ports[1] + " " + portPath(ports[1]),
			"net1 " + namespace + "/ports " + portResource + " " + ports[0] + " " + portPath(ports[0]), "net3 " + namespace + "/chain   " + portSocket}
		if !slices.Equal(got, want) {
			k.t.Errorf("container %s has in devices.json\n%s\nwant\n%s", container, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if !strings.HasPrefix(rest, vswitch.Greeting(ports[0])+"\n"+vswitch.Greeting(ports[1])+"\n"+vswitch.Greeting("the vswitch")+"\n") || !strings.Contains(rest, "inet 10.89.") {
			k.t.Errorf("the sockets and the interface of container %s say %s", container, rest)
		}
	}

	var statuses []netAttachment
	text := k.Kubectl("--namespace", namespace, "get", "pod", "router", `--output=jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
	if err := json.Unmarshal([]byte(text), &statuses); err != nil {
		k.t.Fatalf("%v: %s", err, text)
	}
	var got []string
	for _, s := range statuses {
		got = append(got, strings.Join([]string{s.Interface, s.Name, s.DeviceInfo.VhostUser.Mode, s.DeviceInfo.VhostUser.Path}, " "))
	}
	want := []string{"eth0 pods  ", "net1 " + namespace + "/ports client " + portPath(ports[0]), "fast0 " + namespace + "/ports client " + portPath(ports[1]), "net3 " + namespace + "/chain  "}
	if !slices.Equal(got, want) {
		k.t.Errorf("network-status has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return ports
}

// Networks of a pod that Multus attaches with jackfield-cni: two with a device of a device plugin, and one with a
// kernel interface and a socket of the vswitch. They follow the pod into a new container and a new sandbox.
func TestNetworksThatMultusAttaches(t *testing.T) {
	for _, mode := range []cluster.MultusMode{cluster.ThinMultus, cluster.ThickMultus} {
		t.Run(string(mode), func(t *testing.T) { testMultusNetworks(t, mode) })
	}
}

func testMultusNetworks(t *testing.T, mode cluster.MultusMode) {
	k := Start(t)
	k.servePorts("mp0", "mp1", "mp2")
	k.installMultus(mode)
	ns := k.Namespace("fast-networks-"+string(mode), nil)
	k.defineNetwork(ns, "ports", portResource, `{"cniVersion": "1.0.0", "name": "ports", "type": "jackfield-cni", "socketDir": "/var/run/vsw",
  "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}, "device": {"type": "vhost-user"}}`)
	k.defineNetwork(ns, "chain", "", `{"cniVersion": "1.0.0", "name": "chain", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.89.0.0/16"}]]}}, `+port+`]}`)
	before := k.inventory(k.FirstNode())
	spec := Pod{}.spec()
	spec["containers"] = []any{portContainer("main"), portContainer("second")}
	k.Create(object(map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": map[string]any{
		"name": "router", "namespace": ns, "annotations": map[string]string{networksKey: "ports,ports@fast0,chain"}}}))
	k.WaitPod(ns, "router")
	ports := k.checkNetworks(ns)
	contains(t, k.Jackfield("status", ns+"/router"), `network "`+ns+`/ports" on net1`, `network "`+ns+`/ports" on fast0`, `network "`+ns+`/chain" on net3`)

	k.Exec(ns, "router", "touch", "/tmp/end")
	k.Wait("the container runs again", func() error {
		if s := k.State(ns, "router"); s.Restarts != 1 || !s.Ready {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	if after := k.checkNetworks(ns); !slices.Equal(after, ports) {
		t.Errorf("after a restart of a container, the ports were %q and are %q", ports, after)
	}

	first := k.sandboxes(ns)
	if len(first) != 1 {
		t.Fatalf("the pod has the sandboxes %q", first)
	}
	if _, err := k.runtime().StopPodSandbox(k.ctx, &cri.StopPodSandboxRequest{PodSandboxId: first[0]}); err != nil {
		t.Fatal(err)
	}
	k.Wait("the pod runs in a new sandbox", func() error {
		now := k.sandboxes(ns)
		if len(now) != 1 || now[0] == first[0] {
			return fmt.Errorf("the ready sandboxes are %q", now)
		}
		if s := k.State(ns, "router"); s.Restarts < 2 || !s.Ready {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	k.WaitPod(ns, "router")
	if after := k.checkNetworks(ns); !slices.Equal(after, ports) {
		t.Errorf("in a new sandbox, the ports were %q and are %q", ports, after)
	}
	if left, err := filepath.Glob(cluster.MultusCache + "/*" + first[0] + "*"); err != nil || len(left) > 0 {
		t.Errorf("left of the first sandbox: %q, %v", left, err)
	}

	k.Kubectl("--namespace", ns, "delete", "pod", "router")
	k.nothingLeft(k.FirstNode(), ns, before)
}

// A network of Multus whose port jackfield-cni creates on grout, with the configuration that the DaemonSet
// keeps on the node.
func TestMultusNetworkHasPortOnGrout(t *testing.T) {
	k := Start(t)
	dir, err := os.MkdirTemp("/opt", "grout")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir) // grout's client must have the same path on the node
	s := grout.Start(t, dir)
	s.Run("interface", "add", "bridge", "br0")
	k.Upgrade(strings.Replace(values, "[/var/run/vsw]}\n", fmt.Sprintf("[/var/run/vsw, %s/sockets]}\n"+
		"  vswitches: [{name: grout0, type: grout, endpoint: %s, grcli: %s, bridges: [br0], defaults: {bridge: br0}}]\n", dir, s.Socket, s.Grcli), 1) +
		fastRule + fmt.Sprintf(`      - name: ports
        for: {namespaces: [fast-grout]}
        allow: {ports: ["grout0/br0"], sockets: ["%s/sockets/**"]}
`, dir))
	t.Cleanup(func() { k.Upgrade(values + fastRule) })
	k.waitConfiguration("grout0")
	k.installMultus(cluster.ThinMultus)
	ns := k.Namespace("fast-grout", nil)
	k.defineNetwork(ns, "fast", "", `{"cniVersion": "1.0.0", "name": "fast", "type": "jackfield-cni", "vswitch": "grout0", "socketDir": "`+dir+`/sockets",
  "device": {"type": "vhost-user", "mode": "client"}}`)
	before := k.inventory(k.FirstNode())
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{networksKey: "fast"}})
	contains(t, k.Exec(ns, "router", "sh", "-c", "test -S $JACKFIELD_NET1_SOCKET && cat $JACKFIELD_DEVICES_FILE"), `"`+ns+`/fast"`, `"net1"`)
	port := vswitchport.PortName(vswitchport.Owner{ContainerID: k.sandboxes(ns)[0], Interface: "net1"})
	if found, ok := s.Interface(port); !ok || found.Domain != "br0" || !strings.Contains(found.Devargs, dir+"/sockets/") {
		t.Errorf("grout has %+v as %q", found, port)
	}
	k.Kubectl("--namespace", ns, "delete", "pod", "router")
	k.Wait("the port is removed", func() error {
		if found, ok := s.Interface(port); ok {
			return fmt.Errorf("grout has %+v", found)
		}
		return nil
	})
	k.nothingLeft(k.FirstNode(), ns, before)
}

// startOVS starts Open vSwitch as ovs0 until the test ends. It has ports for the namespaces fast-ovs*. Values are more
// values of the chart.
func (k *K) startOVS(more string) *ovs.Switch {
	k.t.Helper()
	s := ovs.StartIn(k.t, "/opt") // the node has a /run of its own
	sockets := filepath.Join(s.Dir, "sockets")
	k.Upgrade(strings.Replace(values, "[/var/run/vsw]}\n", fmt.Sprintf("[/var/run/vsw, %s]}\n"+
		"  vswitches: [{name: ovs0, type: ovs, endpoint: %s, bridges: [br0], defaults: {bridge: br0}}]\n",
		sockets, s.Endpoint()), 1) +
		fastRule + fmt.Sprintf(`      - name: ports
        for: {namespaces: ["fast-ovs*"]}
        allow: {ports: ["ovs0/br0"], sockets: ["%s/**"]}
%s`, sockets, more))
	k.t.Cleanup(func() { k.Upgrade(values + fastRule) })
	k.waitConfiguration("ovs0")
	return s
}

// The plugin of the DaemonSet creates a port again that Open vSwitch lost.
func TestPortReturnsOnOpenVSwitch(t *testing.T) {
	k := Start(t)
	s := k.startOVS("")
	sockets := filepath.Join(s.Dir, "sockets")
	k.installMultus(cluster.ThinMultus)
	ns := k.Namespace("fast-ovs", nil)
	k.defineNetwork(ns, "fast", "", `{"cniVersion": "1.0.0", "name": "fast", "type": "jackfield-cni", "vswitch": "ovs0", "socketDir": "`+sockets+`",
  "device": {"type": "vhost-user", "mode": "server"}}`)
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{networksKey: "fast"}})
	port := vswitchport.PortName(vswitchport.Owner{ContainerID: k.sandboxes(ns)[0], Interface: "net1"})
	describe := func() string { return s.Vsctl("get", "interface", port, "type", "options", "external_ids") }
	before := describe()

	s.Vsctl("del-port", port)
	k.Wait("the port returns", func() error {
		if ports := strings.Fields(s.Vsctl("list-ports", "br0")); !slices.Equal(ports, []string{port}) {
			return fmt.Errorf("br0 has %q", ports)
		}
		return nil
	})
	if after := describe(); after != before {
		t.Errorf("the port was %s and is %s", before, after)
	}
	contains(t, k.Jackfield("status"), "ovs0")
	k.Kubectl("--namespace", ns, "delete", "pod", "router")
	k.Wait("the port is removed", func() error {
		if ports := s.Vsctl("list-ports", "br0"); ports != "" {
			return fmt.Errorf("br0 has %q", ports)
		}
		return nil
	})
}
