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

	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/host/sysfstest"
	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/dradriver"
	"github.com/jackfield/jackfield/test/vswitch"
)

// testDriver is the DRA driver that Kubernetes tests itself with.
const testDriver = "test-driver.cdi.k8s.io"

// pluginsDir has the data directories of the kubelet's plugins.
const pluginsDir = "/var/lib/kubelet/plugins/"

// runTestDriver runs the kubelet plugin of Kubernetes' test driver in a pod, and creates its DeviceClass.
func (k *K) runTestDriver() {
	k.t.Helper()
	k.deviceClass(testDriver)
	namespace := k.Namespace("claims-driver", nil)
	var mounts, volumes []any
	for i, path := range []string{pluginsDir + testDriver, "/var/lib/kubelet/plugins_registry", "/var/run/cdi", "/etc/kubernetes", k.Kit().Bin} {
		name := fmt.Sprint("dir", i)
		mounts = append(mounts, map[string]any{"name": name, "mountPath": path})
		volumes = append(volumes, map[string]any{"name": name, "hostPath": map[string]any{"path": path, "type": "DirectoryOrCreate"}})
	}
	spec := Pod{Container: map[string]any{"volumeMounts": mounts, "command": []string{k.Kit().Program("test-driver"), "kubelet-plugin",
		"--kubeconfig=/etc/kubernetes/admin.conf", "--node-name=node", "--enable-device-metadata"}}}.spec()
	spec["volumes"], spec["hostNetwork"] = volumes, true // pods have no route to the API server
	k.t.Cleanup(func() {
		if k.t.Failed() {
			log, err := k.Cluster.Kubectl(k.ctx, "--namespace", namespace, "logs", "driver", "--tail=30")
			k.t.Logf("the driver logged (%v):\n%s", err, log)
		}
	})
	k.Create(object(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "driver", "namespace": namespace}, "spec": spec}))
	k.WaitPod(namespace, "driver")
}

// deviceClass creates a DeviceClass of all devices of a driver, with the driver's name. It and the driver's
// ResourceSlices are removed when the test ends; a driver that still runs would publish them again.
func (k *K) deviceClass(driver string) {
	k.t.Helper()
	k.Create(object(map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": map[string]any{"name": driver},
		"spec": map[string]any{"selectors": []any{map[string]any{"cel": map[string]any{"expression": fmt.Sprintf("device.driver == %q", driver)}}}}}))
	k.t.Cleanup(func() {
		for _, args := range [][]string{{"deviceclass", driver}, {"resourceslices", "--field-selector=spec.driver=" + driver}} {
			if _, err := k.Cluster.Kubectl(k.ctx, append([]string{"delete"}, args...)...); err != nil {
				k.t.Errorf("clean up: %v", err)
			}
		}
	})
}

// claimPod returns a pod whose container has a claim "nic" from a template. requests has the CEL expression that
// selects the device of each request; "" selects any.
func claimPod(p Pod, driver string, requests map[string]string) string {
	var list []any
	for request, selector := range requests {
		exactly := map[string]any{"deviceClassName": driver}
		if selector != "" {
			exactly["selectors"] = []any{map[string]any{"cel": map[string]any{"expression": selector}}}
		}
		list = append(list, map[string]any{"name": request, "exactly": exactly})
	}
	meta := map[string]any{"name": p.Name, "namespace": p.Namespace, "annotations": p.Annotations}
	spec := Pod{Container: map[string]any{"resources": map[string]any{"claims": []any{map[string]any{"name": "nic"}}}}}.spec()
	spec["resourceClaims"] = []any{map[string]any{"name": "nic", "resourceClaimTemplateName": p.Name}}
	return object(map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta,
		"spec": map[string]any{"spec": map[string]any{"devices": map[string]any{"requests": list}}}}) + "\n---\n" +
		object(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
}

// claimName returns the name of the claim that was created for a pod.
func (k *K) claimName(namespace, pod string) string {
	k.t.Helper()
	return k.Kubectl("--namespace", namespace, "get", "pod", pod, "--output=jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}")
}

// element returns the element of a name in the devices.json of a pod, on one line and with sorted keys.
func (k *K) element(namespace, pod, name string) (string, error) {
	out, err := k.Cluster.Kubectl(k.ctx, "--namespace", namespace, "exec", pod, "--", "sh", "-c", "cat $JACKFIELD_DEVICES_FILE")
	if err != nil {
		return "", err
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	for _, e := range list {
		if e["name"] == name {
			line, err := json.Marshal(e)
			return string(line), err
		}
	}
	return "", fmt.Errorf("no element has the name %q: %s", name, out)
}

// waitElement waits until devices.json of a pod has an element.
func (k *K) waitElement(namespace, pod, name, want string) {
	k.t.Helper()
	k.Wait("devices.json has "+name, func() error {
		got, err := k.element(namespace, pod, name)
		if err == nil && got != want {
			err = fmt.Errorf("found\n%s\nwant\n%s", got, want)
		}
		return err
	})
}

// claimLeftovers returns the files that drivers keep for claims.
func (k *K) claimLeftovers() (left []string) {
	k.t.Helper()
	for _, pattern := range []string{pluginsDir + "*/dra-device-metadata/*", k.HostPath("/var/run/cdi/*")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			k.t.Fatal(err)
		}
		left = append(left, found...)
	}
	return left
}

// deleteClaims deletes the pods of a namespace and waits until the drivers keep nothing for claims.
func (k *K) deleteClaims(namespace string) {
	k.t.Helper()
	k.Kubectl("--namespace", namespace, "delete", "pods", "--all", "--timeout="+cluster.Patience.String())
	k.Wait("nothing of the claims is left", func() error {
		if left := k.claimLeftovers(); len(left) > 0 {
			return errors.New("left: " + strings.Join(left, "\n"))
		}
		return nil
	})
}

// A device of Kubernetes' own test driver, whose metadata names neither a PCI function nor a socket, reaches
// devices.json beside what the runtime injected for the claim.
func TestClaimOfKubernetesTestDriver(t *testing.T) {
	k := Start(t)
	k.runTestDriver()
	ns := k.Namespace("fast-testdriver", nil)
	k.Create(claimPod(Pod{Namespace: ns, Name: "app"}, testDriver, map[string]string{"vf": ""}))
	k.WaitPod(ns, "app")
	claim := k.claimName(ns, "app")
	variable := "claim_" + strings.ReplaceAll(claim, "-", "_") + "_vf=true"
	out := k.Exec(ns, "app", "sh", "-c", "env; cat /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/nic/vf/"+testDriver+"-metadata.json")
	contains(t, out, variable, "JACKFIELD_DEVICES_FILE=/var/run/jackfield/devices.json", `"metadata.resource.k8s.io/v1beta1"`)
	_, device, _ := strings.Cut(out, `"device-`)
	device = "device-" + device[:2]
	k.waitElement(ns, "app", "nic/vf", fmt.Sprintf(`{"jackfield":{"claim":{"device":%q,"driver":%q,"name":%q,"pod-claim":"nic","pool":"node","request":"vf"}},"name":"nic/vf"}`,
		device, testDriver, claim))
	contains(t, k.Jackfield("status", ns+"/app"), fmt.Sprintf(`claim "nic/vf" device %q: injected`, device),
		pluginsDir+testDriver+"/dra-device-metadata/"+ns+"_"+claim+"/vf/metadata.json")
	k.deleteClaims(ns)
}

const (
	nicDriver = "nic.example.com"
	// hardware is the directory whose sys and dev the plugin sees in place of the machine's.
	hardware = "/opt/hardware"
	// claimRule grants one namespace group 12 and what all groups share, and another one group 13 alone.
	claimRule = `      - name: claimed-groups
        for: {namespaces: [fast-claims]}
        allow: {devices: ["/dev/vfio/12", "/dev/vfio/vfio"]}
      - name: group-alone
        for: {namespaces: [fast-refused]}
        allow: {devices: ["/dev/vfio/13"]}
`
)

// plugHardware has the plugin see functions of a NIC that are bound to vfio-pci. The function with the number
// N, from 2, is in the IOMMU group 9+N. Its node is one of /dev/zero.
func (k *K) plugHardware(functions ...int) {
	k.t.Helper()
	if err := os.MkdirAll(hardware, 0o755); err != nil {
		k.t.Fatal(err)
	}
	tree, err := sysfstest.New(hardware)
	if err == nil {
		err = errors.Join(tree.Node("/dev/null", 0o666, sysfstest.Null()), tree.Node("/dev/zero", 0o666, sysfstest.Zero()))
	}
	// The runtime mounts its own directories there.
	for _, dir := range []string{"/dev/shm", "/dev/pts", "/dev/mqueue", "/sys/fs/cgroup"} {
		err = errors.Join(err, tree.Mkdir(dir))
	}
	for _, n := range functions {
		err = errors.Join(err, tree.AddPCI(functionAddress(n), "vfio-pci", 9+n), tree.AddVFIO(9+n, sysfstest.Zero(), sysfstest.Null()))
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.mountHardware(hardware)
	k.t.Cleanup(func() { k.mountHardware("") })
}

// waitConfiguration waits until the plugin's configuration, which it copies to the node, contains a text.
func (k *K) waitConfiguration(text string) {
	k.t.Helper()
	k.Wait("the plugin's configuration has "+text, func() error {
		data, err := os.ReadFile(k.HostPath("/run/jackfield/last-good-config.yaml"))
		if err == nil && !strings.Contains(string(data), text) {
			err = errors.New(string(data))
		}
		return err
	})
}

func functionAddress(n int) string { return fmt.Sprintf("0000:03:00.%d", n) }

// mountHardware changes which directory of the node has the plugin's /sys and /dev.
func (k *K) mountHardware(dir string) {
	k.t.Helper()
	volume := func(name string) map[string]any {
		return map[string]any{"name": "host-" + name, "hostPath": map[string]any{"path": dir + "/" + name}}
	}
	k.Kubectl("--namespace", cluster.Namespace, "patch", "daemonset", cluster.Release, "--patch", object(map[string]any{"spec": map[string]any{
		"template": map[string]any{"spec": map[string]any{"volumes": []any{volume("sys"), volume("dev")}}}}}))
	if err := k.WaitJackfield(k.ctx); err != nil {
		k.t.Fatal(err)
	}
}

// vfioNodes are the nodes of a function that its driver injects by CDI.
func vfioNodes(n int) specs.ContainerEdits {
	return specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{
		{Path: fmt.Sprintf("/dev/vfio/%d", 9+n), Type: "c", Major: 1, Minor: 5}, {Path: "/dev/vfio/vfio", Type: "c", Major: 1, Minor: 3}}}
}

// selectDevice returns the CEL expression that selects the device of a name.
func selectDevice(name string) string {
	return fmt.Sprintf("device.attributes[%q].%s == %q", nicDriver, dradriver.NameAttribute, name)
}

// devicePaths returns the paths of the devices in the runtime's configuration of a pod's container.
func (k *K) devicePaths(namespace, pod string) (paths []string) {
	k.t.Helper()
	_, id, _ := strings.Cut(k.State(namespace, pod).Container, "//")
	data, err := os.ReadFile(k.HostPath("/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + id + "/config.json"))
	if err != nil {
		k.t.Fatal(err)
	}
	var config struct {
		Linux struct{ Devices []struct{ Path string } }
	}
	if err := json.Unmarshal(data, &config); err != nil {
		k.t.Fatal(err)
	}
	for _, d := range config.Linux.Devices {
		paths = append(paths, d.Path)
	}
	slices.Sort(paths)
	return paths
}

// A driver whose metadata names PCI functions and sockets: devices reach the container that claims them, with
// what the runtime injected by CDI and without what no rule grants.
func TestClaimedDevicesReachContainer(t *testing.T) {
	k := Start(t)
	k.Upgrade(strings.Replace(values, "config:\n", "config:\n  dialects: [{match: {driver: "+nicDriver+"}, creator: host, path: host}]\n", 1) + fastRule + claimRule)
	t.Cleanup(func() { k.Upgrade(values + fastRule) })
	k.plugHardware(2, 3, 4)
	k.waitConfiguration("claimed-groups")
	socket := portPath("claim0")
	if err := os.MkdirAll(filepath.Dir(k.HostPath(socket)), 0o755); err != nil {
		t.Fatal(err)
	}
	server, err := vswitch.Listen(vswitch.VhostUser, k.HostPath(socket), vswitch.Greeting("claim0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	k.deviceClass(nicDriver)
	kubeconfig, err := k.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	driver, err := dradriver.StartInCluster(t.Context(), kubeconfig, k.HostPath("/var/run/cdi"), nicDriver,
		dradriver.Device{Name: "injected", PCIAddress: functionAddress(2), Edits: vfioNodes(2)},
		dradriver.Device{Name: "granted", PCIAddress: functionAddress(3)},
		dradriver.Device{Name: "denied", PCIAddress: functionAddress(4)},
		dradriver.Device{Name: "port", VhostUserPath: socket, MTU: 9000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.Stop(); err != nil {
			t.Error(err)
		}
	})
	ns := k.Namespace("fast-claims", nil)
	before := k.inventory(k.FirstNode())

	k.Create(claimPod(Pod{Namespace: ns, Name: "app", Annotations: map[string]string{deviceKey: nic0}}, nicDriver,
		map[string]string{"cdi": selectDevice("injected"), "vf": selectDevice("granted"), "sw": selectDevice("port")}))
	k.WaitPod(ns, "app")
	claim := k.claimName(ns, "app")
	if got, want := k.devicePaths(ns, "app"), []string{"/dev/acme0", "/dev/vfio/11", "/dev/vfio/12", "/dev/vfio/vfio"}; !slices.Equal(got, want) {
		t.Errorf("the container has the devices %q, want %q", got, want)
	}
	element := func(request, device, rest string) string {
		return fmt.Sprintf(`"jackfield":{"claim":{"device":%q,"driver":%q,"name":%q,"pod-claim":"nic","pool":"node","request":%q},`, device, nicDriver, claim, request) + rest
	}
	pci := func(address string) string {
		return `{"device-info":{"pci":{"pci-address":"` + address + `"},"type":"pci","version":"1.1.0"},`
	}
	k.waitElement(ns, "app", "nic/cdi", pci("0000:03:00.2")+element("cdi", "injected", `"eal":["-a","0000:03:00.2"]},"name":"nic/cdi"}`))
	k.waitElement(ns, "app", "nic/vf", pci("0000:03:00.3")+element("vf", "granted", `"eal":["-a","0000:03:00.3"]},"name":"nic/vf"}`))
	const inContainer = "/var/run/jackfield/net/nic-sw/vhost.sock"
	k.waitElement(ns, "app", "nic/sw", `{"device-info":{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"`+inContainer+`"}},`+
		element("sw", "port", `"eal":["--vdev=net_virtio_user1,path=`+inContainer+`"],"own-path":"`+socket+`","socket-created-by":"host"},"mtu":9000,"name":"nic/sw"}`))
	contains(t, k.Exec(ns, "app", "sh", "-c", "env; ls -l /dev/vfio; sockclient connect $JACKFIELD_NIC_SW_SOCKET"),
		"JACKFIELD_NIC_CDI_PCI=0000:03:00.2\n", "JACKFIELD_NIC_CDI_TYPE=pci\n", "JACKFIELD_NIC_VF_EAL=-a 0000:03:00.3\n", "JACKFIELD_NIC_SW_SOCKET="+inContainer+"\n",
		"1,   5", "1,   3", vswitch.Greeting("claim0"))
	metadata := func(request string) string {
		return pluginsDir + nicDriver + "/dra-device-metadata/" + ns + "_" + claim + "/" + request + "/metadata.json"
	}
	contains(t, k.Jackfield("status", ns+"/app"), `claim "nic/cdi" device "injected": `, `claim "nic/vf" device "granted": injected`,
		`claim "nic/sw" device "port": injected`, metadata("cdi"), metadata("vf"), metadata("sw"), "claimed-groups")
	objects := k.Kubectl("--namespace", ns, "get", "pods,resourceclaims,resourceclaimtemplates", "--output=yaml")
	explained, err := k.KubectlInput(k.ctx, objects, "--namespace", cluster.Namespace, "exec", "--stdin", "daemonset/"+cluster.Release,
		"--container", "jackfield-nri", "--", "jackfield", "explain", "-", "--sandbox-id", k.sandboxes(ns)[0])
	if err != nil {
		t.Error(err)
	}
	contains(t, explained, `claim "nic/vf" device "granted": injected`, `claim "nic/sw" device "port": injected`)

	// The driver learns more about a device while the container runs.
	prepared, err := driver.PreparedClaim("granted")
	if err != nil {
		t.Fatal(err)
	}
	for i := range prepared.Devices {
		prepared.Devices[i].Network = &resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"192.0.2.5/24"}, HardwareAddress: "c2:11:22:33:44:55"}
	}
	if err := driver.Update(t.Context(), prepared, "vf"); err != nil {
		t.Fatal(err)
	}
	k.waitElement(ns, "app", "nic/vf", pci("0000:03:00.3")+`"interface":"net1","ips":["192.0.2.5/24"],`+
		element("vf", "granted", `"eal":["-a","0000:03:00.3"]},"mac":"c2:11:22:33:44:55","name":"nic/vf"}`))
	contains(t, k.Jackfield("status", ns+"/app"), "nic/vf")
	k.deleteClaims(ns)

	// The same driver's device as an extended resource: the node is in the container, and the claim is found by
	// the Pods API.
	k.extendedClass("granted", "acme.com/vf", fmt.Sprintf("device.driver == %q && %s", nicDriver, selectDevice("granted")))
	k.RunPod(extendedPod(ns, "extended", "acme.com/vf"))
	if got, want := k.devicePaths(ns, "extended"), []string{"/dev/vfio/12", "/dev/vfio/vfio"}; !slices.Equal(got, want) {
		t.Errorf("the container with an extended resource has the devices %q, want %q", got, want)
	}
	contains(t, k.Exec(ns, "extended", "sh", "-c", "cat $JACKFIELD_DEVICES_FILE"), `"resource": "acme.com/vf"`, `"pci-address": "0000:03:00.3"`)
	contains(t, k.Jackfield("status", ns+"/extended"), `resource "acme.com/vf" device "granted": injected`)
	k.deleteClaims(ns)

	// No rule grants the device's own node: the container runs without the device.
	k.Create(claimPod(Pod{Namespace: ns, Name: "without"}, nicDriver, map[string]string{"vf": selectDevice("denied")}))
	k.WaitPod(ns, "without")
	if paths := k.devicePaths(ns, "without"); len(paths) > 0 {
		t.Errorf("a container without a grant has the devices %q", paths)
	}
	if element, err := k.element(ns, "without", "nic/vf"); err == nil {
		t.Errorf("devices.json of a container without a grant has %s", element)
	}
	contains(t, k.Kubectl("--namespace", cluster.Namespace, "logs", "daemonset/"+cluster.Release), `claim \"nic/vf\" device \"denied\"`, "/dev/vfio/13")
	k.deleteClaims(ns)
	k.nothingLeft(k.FirstNode(), ns, before)

	// A rule grants the device's own node, and none grants what it needs besides: the container is refused.
	refused := k.Namespace("fast-refused", nil)
	k.Create(claimPod(Pod{Namespace: refused, Name: "stranger"}, nicDriver, map[string]string{"vf": selectDevice("denied")}))
	contains(t, k.WaitEvent(refused, "stranger", `deny device node "/dev/vfio/vfio"`), `container "fast-refused/stranger/main"`, `closest rule "group-alone"`)
	k.deleteClaims(refused)
	k.nothingLeft(k.FirstNode(), refused, before)
}
