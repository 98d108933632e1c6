// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const (
	sandbox   = "e061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"
	multusDir = "/var/lib/cni/multus"
	socket    = "/var/lib/kubelet/pod-resources/kubelet.sock"
	vf        = "intel.com/vf" // a resource of PCI functions
)

// node is a directory tree of a host.
type node struct {
	t    testing.TB
	dir  string
	root hostfs.Root
	// kubelet is nil on a node without one. Otherwise a file at its socket's path exists.
	kubelet *fakeKubelet
	opts    Options
}

func newNode(t testing.TB) *node {
	t.Helper()
	root, err := hostfs.New(t.TempDir())
	testkit.Must(t, err)
	n := &node{t: t, dir: root.Dir(), root: root, opts: Options{MultusDir: multusDir, PodResourcesSocket: socket}}
	for _, dir := range []string{deviceinfo.DefaultCNIDir, deviceinfo.DefaultDPDir, multusDir + "/results"} {
		testkit.Must(t, os.MkdirAll(n.path(dir), 0o755))
	}
	return n
}

func (n *node) path(host string) string { return filepath.Join(n.dir, host) }

func (n *node) write(host, content string) {
	n.t.Helper()
	testkit.Must(n.t, os.MkdirAll(filepath.Dir(n.path(host)), 0o755))
	testkit.Must(n.t, os.WriteFile(n.path(host), []byte(content), 0o600))
}

// writeCNIFile writes the device-info file of a network under the name that Multus chooses.
func (n *node) writeCNIFile(network, ifName, content string) string {
	n.t.Helper()
	file := filepath.Join(deviceinfo.DefaultCNIDir, strings.ReplaceAll(network, "/", "-")+"-"+sandbox+"_"+ifName)
	n.write(file, content)
	return file
}

// writeDPFile writes the device plugin's file of a device.
func (n *node) writeDPFile(resource, id, content string) string {
	n.t.Helper()
	file, err := deviceinfo.DevicePluginDir{}.Path(resource, id)
	testkit.Must(n.t, err)
	n.write(file, content)
	return file
}

const multusRecordPath = multusDir + "/" + sandbox

// writeMultusRecord writes Multus' record of the sandbox. Like Multus, it puts the cluster network first.
func (n *node) writeMultusRecord(ds ...map[string]any) {
	n.t.Helper()
	n.write(multusRecordPath, formatMultusRecord(n.t, ds...))
}

// formatMultusRecord returns a record with all keys that Multus writes.
func formatMultusRecord(t testing.TB, ds ...map[string]any) string {
	t.Helper()
	all := []map[string]any{{"Name": "cbr0", "ConfList": map[string]any{"name": "cbr0", "plugins": []any{map[string]any{"type": "flannel"}}}}}
	for _, d := range append(all, ds...) {
		for k, v := range map[string]any{
			"Conf": map[string]any{"ipam": map[string]any{}, "dns": map[string]any{}}, "ConfList": map[string]any{"plugins": nil},
			"IsFilterV4Gateway": false, "IsFilterV6Gateway": false, "Bytes": base64.StdEncoding.EncodeToString([]byte(`{"type":"sriov"}`)),
		} {
			if _, ok := d[k]; !ok {
				d[k] = v
			}
		}
	}
	b, err := json.Marshal(append(all, ds...))
	testkit.Must(t, err)
	return string(b)
}

// networkEntry returns the entry of a network in Multus' record.
func networkEntry(name string, kv ...string) map[string]any {
	_, conf, _ := strings.Cut(name, "/")
	d := map[string]any{"Name": name, "Conf": map[string]any{"cniVersion": "1.0.0", "name": conf + "-conf", "type": "sriov"}}
	for i := 0; i+1 < len(kv); i += 2 {
		d[kv[i]] = kv[i+1]
	}
	return d
}

// vfNetworkEntry returns the entry of a network with a device of the resource vf.
func vfNetworkEntry(name, id string) map[string]any {
	return networkEntry(name, "deviceID", id, "resourceName", vf)
}

// writeCNIResult writes libcni's record of an attachment.
func (n *node) writeCNIResult(conf, ifName, deviceID string) string {
	n.t.Helper()
	file := filepath.Join(multusDir, "results", conf+"-"+sandbox+"-"+ifName)
	n.write(file, cniResult(conf, sandbox, ifName, deviceID))
	return file
}

// cniResult returns the content of libcni's record.
func cniResult(conf, id, ifName, deviceID string) string {
	args := map[string]any{"portMappings": []any{map[string]any{"hostPort": 1}}}
	if deviceID != "" {
		args["deviceID"] = deviceID
		args["CNIDeviceInfoFile"] = "/var/run/k8s.cni.cncf.io/devinfo/cni/x"
	}
	b, _ := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": id, "config": []byte(`{}`), "ifName": ifName, "networkName": conf, "netns": "/var/run/netns/x",
		"cniArgs":        [][2]string{{"IgnoreUnknown", "true"}, {"K8S_POD_NAME", "pod"}},
		"capabilityArgs": args, "result": map[string]any{"cniVersion": "1.0.0", "dns": map[string]any{}},
	})
	return string(b)
}

func pciInfo(address string) string {
	return fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":%q}}`, address)
}

func vdpaInfo(name, address string) string {
	pci := ""
	if address != "" {
		pci = fmt.Sprintf(`,"pci-address":%q`, address)
	}
	return fmt.Sprintf(`{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":%q,"driver":"vhost","path":"/dev/vhost-vdpa-0"%s}}`, name, pci)
}

const vhostInfo = `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/p1/s"}}`

// fakeKubelet returns the configured allocation or error.
type fakeKubelet struct {
	mu    sync.Mutex
	pod   allocation.Allocation
	err   error
	hangs bool
	calls int
	left  time.Duration // remaining time of the last call
}

func (k *fakeKubelet) queryPod(ctx context.Context, _ hostfs.Root, _, namespace, name string) (allocation.Allocation, error) {
	k.mu.Lock()
	k.calls++
	if deadline, ok := ctx.Deadline(); ok {
		k.left = time.Until(deadline)
	}
	pod, err, hangs := k.pod, k.err, k.hangs
	k.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	}
	if namespace != "ns" || name != "pod" {
		return nil, fmt.Errorf("unexpected pod %s/%s: %w", namespace, name, errdefs.ErrNotFound)
	}
	return pod, err
}

func (k *fakeKubelet) countCalls() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls
}

// allocate starts a kubelet that allocated devices to containers. A line has the form "c1: intel.com/vf=ID".
func (n *node) allocate(lines ...string) *fakeKubelet {
	n.t.Helper()
	k := &fakeKubelet{}
	for _, line := range lines {
		name, devices, ok := strings.Cut(line, ": ")
		if !ok {
			n.t.Fatalf("%q is not CONTAINER: RESOURCE=ID ...", line)
		}
		c := allocation.Container{Name: name}
		for _, f := range strings.Fields(devices) {
			r, id, _ := strings.Cut(f, "=")
			if claim, ok := strings.CutPrefix(r, "claim:"); ok {
				c.Claims = append(c.Claims, allocation.ClaimDevice{Namespace: "ns", Claim: claim, Device: id})
				continue
			}
			c.Resources = append(c.Resources, allocation.Resource{Name: r, IDs: strings.Split(id, ",")})
		}
		k.pod = append(k.pod, c)
	}
	n.useKubelet(k)
	return k
}

func (n *node) useKubelet(k *fakeKubelet) {
	n.t.Helper()
	n.kubelet, n.opts.Kubelet = k, k.queryPod
	n.write(socket, "")
}

func (n *node) newFinder() *Finder {
	n.t.Helper()
	f, err := New(n.root, n.opts)
	testkit.Must(n.t, err)
	n.t.Cleanup(func() { testkit.Must(n.t, f.Close()) })
	return f
}

// newQuery returns the query for container c1 of pod ns/pod.
func newQuery(env ...string) Query {
	return Query{SandboxID: sandbox, Namespace: "ns", Pod: "pod", Container: "c1", Env: append([]string{"PATH=/bin"}, env...)}
}

// wantOneAttachment returns the only attachment, and fails the test if there are more or none.
func wantOneAttachment(t testing.TB, as []Attachment, err error) Attachment {
	t.Helper()
	testkit.Must(t, err)
	if len(as) != 1 {
		t.Fatalf("found %d attachments, want 1: %+v", len(as), as)
	}
	return as[0]
}

func findByIfName(t testing.TB, as []Attachment, ifName string) Attachment {
	t.Helper()
	for _, a := range as {
		if a.IfName == ifName {
			return a
		}
	}
	t.Fatalf("no attachment on %s in %+v", ifName, as)
	return Attachment{}
}

// wantConflict checks that the error is a conflict that names both sources.
func wantConflict(t testing.TB, err error, names ...string) {
	t.Helper()
	var c *ConflictError
	if !errors.As(err, &c) || !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("got error %v, want a conflict", err)
		return
	}
	if c.First.Source == "" || c.Second.Source == "" || c.First.Says == "" || c.Second.Says == "" || c.On == "" {
		t.Errorf("the conflict has an empty field: %+v", c)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %q: %v", name, err)
		}
	}
}

func hasNote(a Attachment, part string) bool {
	return strings.Contains(strings.Join(a.Notes, "\n"), part)
}

// findNetworks returns the attachments of a sandbox without allocated devices.
func (f *Finder) findNetworks(ctx context.Context, q Query) ([]Attachment, error) {
	attached, _, err := f.Search(ctx, q).Find()
	return attached, err
}

func (f *Finder) findAllocated(ctx context.Context, q Query) ([]Attachment, error) {
	_, allocated, err := f.Search(ctx, q).Find()
	return allocated, err
}
