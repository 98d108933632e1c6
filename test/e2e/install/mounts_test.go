// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/internal/host/sysfstest"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/kubelet"
)

// hostDir replaces the host's /sys and /dev. The rest of the host is the jail's.
const hostDir = "/run/hw"

// vf returns the PCI function of an IOMMU group.
func vf(group int) string { return fmt.Sprintf("0000:03:00.%d", group-10) }

const mountsConfig = `
sockets: {user: "1000", roots: [/var/run/jackfield/sockets, /var/run/vsw]}
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow:
        cdi:     ["vendor.com/*=*"]
        sockets: ["/var/run/vsw/**"]
        devices: ["/dev/vfio/*"]
    - name: labelled
      for:   {podLabels: {example.com/now: "yes"}}
      allow: {cdi: ["labelled.com/*=*"]}
`

// mountNeeds lists properties of mounts, as their volumeMounts have them, each with a feature that needs the property.
// "" means that the plugin does not start without it.
func mountNeeds() []mountNeed {
	return []mountNeed{
		{"/etc/jackfield", "mount", ""},
		{"/run/jackfield", "mount", ""},
		{"/run/jackfield", "write", "a socket of the host"},
		{"/run/jackfield", "Bidirectional", "live sockets"},
		{"/var/run/nri", "mount", ""},
		{"/etc/cdi", "mount", "CDI files of the administrator"},
		{"/var/run/cdi", "mount", "CDI files of vendors"},
		{"/var/run/k8s.cni.cncf.io/devinfo/cni", "mount", "a socket of the host"},
		{"/var/run/k8s.cni.cncf.io/devinfo/cni", "write", "a removed sandbox's device-info"},
		{"/var/run/k8s.cni.cncf.io/devinfo/dp", "mount", "a device plugin's own ID"},
		{"/var/lib/cni/multus", "mount", "a network without device-info"},
		{"/var/lib/kubelet/pod-resources", "mount", "the kubelet's word"},
		{"/var/lib/kubelet/pods-api", "mount", "a label of now"},
		{"/var/lib/kubelet/plugins", "mount", "a claim's metadata"},
		{"/var/lib/kubelet/plugins", "HostToContainer", "a claim's metadata in a file system that came later"},
		{"/sys", "mount", "the kubelet's word"},
		{"/dev", "mount", "a device that came later"},
		{"/dev", "HostToContainer", "a device in a file system that came later"},
		{"/var/run/vsw", "mount", "a socket of the host"},
		{"/var/run/vsw", "write", "the application's socket"},
		{"/var/run/vsw", "write", "another user's socket"},
		{"/var/run/vsw", "HostToContainer", "a socket in a file system that came later"},
	}
}

// crioUserNamespaces is where CRI-O mounts the user namespaces of pods. containerd reports a process in them instead.
const crioUserNamespaces = "/var/run/userns"

type mountNeed struct{ path, what, feature string }

// properties are the mount's properties that can be removed one by one.
func (m *mount) properties() []string {
	all := []string{"mount"}
	if !m.ReadOnly {
		all = append(all, "write")
	}
	if m.MountPropagation != "" && m.MountPropagation != "None" {
		all = append(all, m.MountPropagation)
	}
	return all
}

// without returns the DaemonSet without a mount or one of its properties.
func (d *daemonSet) without(path, what string) *daemonSet {
	less := *d
	less.Spec.Template.Spec.Containers = slices.Clone(d.Spec.Template.Spec.Containers)
	c := &less.Spec.Template.Spec.Containers[0]
	c.VolumeMounts = slices.Clone(c.VolumeMounts)
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if m.MountPath != path {
			continue
		}
		switch what {
		case "mount":
			c.VolumeMounts = slices.Delete(c.VolumeMounts, i, i+1)
		case "write":
			m.ReadOnly = true
		case "Bidirectional":
			m.MountPropagation = "HostToContainer"
		case "HostToContainer":
			m.MountPropagation = ""
		}
		break
	}
	return &less
}

// Every mount of the DaemonSet, its write permission and its propagation are needed for a feature. All of
// them are sufficient. A mount that is not in the table is superfluous.
func TestEachMountIsNecessary(t *testing.T) {
	h := e2e.Fresh(t, node.Options{})
	ds := deployed(t, h, "privileged")
	h.WriteFile("/run/mounts/config.yaml", mountsConfig)
	k := createHardware(t, h)
	pods, err := kubelet.StartPodsUnder("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pods.Stop)
	for _, m := range ds.Spec.Template.Spec.Containers[0].VolumeMounts {
		if m.MountPath == crioUserNamespaces {
			continue
		}
		for _, what := range m.properties() {
			if !slices.ContainsFunc(mountNeeds(), func(n mountNeed) bool { return n.path == m.MountPath && n.what == what }) {
				t.Errorf("%s: nothing needs its %s", m.MountPath, what)
			}
		}
	}
	documentedMounts(t)

	runs := 0
	try := func(ds *daemonSet, features ...string) (failed map[string]error, came error) {
		runs++
		pod, came := tryStart(t, h, ds)
		failed = map[string]error{}
		for i, f := range features {
			if came == nil {
				failed[f] = mountFeatures()[f](&tenant{t, h, k, pods, fmt.Sprintf("run%d-%d", runs, i)})
			}
		}
		pod.Remove()
		return failed, came
	}
	var all []string
	for f := range mountFeatures() {
		all = append(all, f)
	}
	failed, came := try(ds, all...)
	if came != nil {
		t.Fatal(came)
	}
	for f, err := range failed {
		if err != nil {
			t.Fatalf("with all mounts there is no %s: %v", f, err)
		}
	}
	done := map[mountNeed]bool{}
	for _, n := range mountNeeds() {
		first := mountNeed{n.path, n.what, ""}
		if done[first] {
			continue
		}
		done[first] = true
		var features []string
		for _, m := range mountNeeds() {
			if m.path == n.path && m.what == n.what {
				features = append(features, m.feature)
			}
		}
		failed, came := try(ds.without(n.path, n.what), features...)
		for _, f := range features {
			switch {
			case f == "" && came == nil:
				t.Errorf("%s without its %s: the plugin comes up", n.path, n.what)
			case f != "" && came != nil:
				t.Errorf("%s without its %s: the plugin does not come up: %v", n.path, n.what, came)
			case f != "" && failed[f] == nil:
				t.Errorf("%s without its %s: there is %s all the same", n.path, n.what, f)
			default:
				t.Logf("%s without its %s: %v", n.path, n.what, errors.Join(came, failed[f]))
			}
		}
	}
}

// createHardware creates three PCI functions that are bound to vfio-pci, and a kubelet.
func createHardware(t *testing.T, h *e2e.H) *kubelet.Server {
	t.Helper()
	h.MkdirAll(hostDir)
	h.MkdirAll("/run/vsw")
	h.MkdirAll("/var/lib/kubelet/pod-resources")
	tree, err := sysfstest.New(hostDir)
	if err != nil {
		t.Fatal(err)
	}
	for group := 11; group <= 13; group++ {
		if err := errors.Join(tree.AddPCI(vf(group), "vfio-pci", group), tree.AddVFIO(group, sysfstest.Zero(), sysfstest.Null())); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tree.Node("/dev/null", 0o666, sysfstest.Null()), tree.Node("/dev/zero", 0o666, sysfstest.Zero())); err != nil {
		t.Fatal(err)
	}
	// Runtimes mount into these directories in every container.
	for _, dir := range []string{"dev/shm", "dev/mqueue", "dev/pts", "sys/fs/cgroup"} {
		h.MkdirAll(filepath.Join(hostDir, dir))
	}
	k, err := kubelet.StartUnder("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	return k
}

// tryStart runs the DaemonSet's pod until the plugin is registered. Otherwise it returns the reason.
func tryStart(t *testing.T, h *e2e.H, ds *daemonSet) (*e2e.Pod, error) {
	t.Helper()
	from := len(h.Log())
	o, err := ds.options("/run/mounts", map[string]string{"/var/run/nri": filepath.Dir(h.NRISocket()), "/sys": hostDir + "/sys", "/dev": hostDir + "/dev"})
	if err != nil {
		t.Fatal(err)
	}
	pod := h.RunPod(node.PodOptions{Name: "jackfield", Namespace: "jackfield-system", Privileged: o.Privileged})
	c, err := pod.Pod.Create(t.Context(), o)
	if err == nil {
		err = c.Start(t.Context())
	}
	if err != nil {
		return pod, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), node.Patience)
	defer cancel()
	go func() { // stop waiting if it has ended or cannot connect
		for ctx.Err() == nil {
			st, err := c.Status(ctx)
			if log, logErr := c.Logs(); err == nil && logErr == nil && (st.GetState() == cri.ContainerState_CONTAINER_EXITED || strings.Contains(log, "nri.sock: connect:")) {
				cancel()
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	if err := h.WaitPluginSince(ctx, "50-jackfield", from); err != nil {
		log, logErr := c.Logs()
		return pod, fmt.Errorf("%w, %w; it logged %s", err, logErr, node.Tail(log, 1))
	}
	return pod, nil
}

// documentedMounts checks that the table of docs/reference/host-paths-and-capabilities.md has every path.
func documentedMounts(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv(checkoutEnv), "docs/reference/host-paths-and-capabilities.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Host directories")
	table, _, _ = strings.Cut(table, "\n1. ")
	for _, n := range mountNeeds() {
		switch name := n.path; {
		case name == "/etc/jackfield", name == "/var/run/vsw": // the configuration's directory, and a socket root
		case !strings.Contains(table, "`"+name+"`") && !strings.Contains(table, "`…/"+filepath.Base(name)+"`"):
			t.Errorf("docs/reference/host-paths-and-capabilities.md does not say what %s is for", name)
		}
	}
}
