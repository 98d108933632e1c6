// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/kubelet"
	"github.com/jackfield/jackfield/test/vswitch"
)

// tenant is a pod that uses one feature, under a name of its own.
type tenant struct {
	t    *testing.T
	h    *e2e.H
	k    *kubelet.Server
	pods *kubelet.PodsServer
	name string
}

// container creates and starts the pod's container, runs a script in it, and returns the script's
// output. prepare, unless nil, is called with the pod before.
func (a *tenant) container(annotations map[string]string, prepare func(pod *e2e.Pod), o node.ContainerOptions, script string) (string, error) {
	pod := a.h.RunPod(node.PodOptions{Name: a.name, Namespace: "dpdk-1", Annotations: annotations})
	defer pod.Remove()
	if prepare != nil {
		prepare(pod)
	}
	c, err := pod.TryCreate(a.t.Context(), o)
	if err != nil {
		return "", err
	}
	if err := c.Start(a.t.Context()); err != nil {
		return "", err
	}
	stdout, stderr, code, err := c.Exec(a.t.Context(), "sh", "-c", script)
	if err == nil && code != 0 {
		err = fmt.Errorf("inside: status %d: %s%s", code, stdout, stderr)
	}
	return strings.TrimSpace(stdout), err
}

func want(got string, err error, want string) error {
	if err == nil && got != want {
		err = fmt.Errorf("inside is %q, want %q", got, want)
	}
	return err
}

// cdi writes a CDI spec file and creates a container that requests its device.
func (a *tenant) cdi(dir, class, edits, script, answer string) error {
	file := filepath.Join(dir, a.name+".json")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(`{"cdiVersion": "0.6.0", "kind": "vendor.com/`+class+`", "devices": [{"name": "dev", "containerEdits": `+edits+`}]}`), 0o644); err != nil {
		return err
	}
	defer os.Remove(file)
	got, err := a.container(map[string]string{"devices.jackfield.dev": "vendor.com/" + class + "=dev"}, nil, node.ContainerOptions{}, script)
	return want(got, err, answer)
}

// socket requests a network's socket.
func (a *tenant) socket(mode, path string, user int64, script, answer string) error {
	got, err := a.container(nil, func(pod *e2e.Pod) { devinfo(a.h, pod, "red", "net1", mode, path) }, node.ContainerOptions{User: user, Group: user}, script)
	return want(got, err, answer)
}

// hostSocket starts a vswitch below the socket root, and a container that connects.
func (a *tenant) hostSocket(dir string, user int64) error {
	path := filepath.Join("/run/vsw", dir, "vhost.sock")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	s, err := vswitch.Listen(vswitch.VhostUser, path, vswitch.Greeting(a.name))
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(path))
	defer s.Close()
	return a.socket("client", "/var"+path, user, "sockclient connect $JACKFIELD_NET1_SOCKET", vswitch.Greeting(a.name))
}

// mountedAt runs f while a file system is mounted that was not mounted when the plugin started.
func mountedAt(dir string, f func() error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	err := f()
	return errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir))
}

// allocated allocates devices of a resource to the pod's container.
func (a *tenant) allocated(resource, id string) {
	a.k.SetPods(kubelet.Pod("dpdk-1", a.name, kubelet.Container("main", kubelet.Device(resource, id))))
}

// pluginsDir has the data directories of DRA drivers.
const pluginsDir = "/var/lib/kubelet/plugins"

// claim allocates a function by a resource claim. The driver injects its metadata, and no device node.
func (a *tenant) claim(driver string) error {
	metadata := filepath.Join(pluginsDir, driver, "dra-device-metadata/dpdk-1_"+a.name, "vf/metadata.json")
	a.h.WriteFile(metadata, fmt.Sprintf(`{"kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/v1beta1",
		"metadata": {"name": %q, "namespace": "dpdk-1", "uid": "u", "generation": 1}, "requests": [{"name": "vf", "devices": [
		{"driver": %q, "pool": "node", "name": "any", "attributes": {"resource.kubernetes.io/pciBusID": {"string": %q}}}]}]}`, a.name, driver, vf(12)))
	a.k.SetPods(kubelet.Pod("dpdk-1", a.name, kubelet.Container("main", kubelet.Claim("dpdk-1", a.name, driver, "any"))))
	got, err := a.container(nil, nil, node.ContainerOptions{Mounts: []*cri.Mount{{HostPath: metadata, Readonly: true,
		ContainerPath: "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/" + a.name + "/vf/" + driver + "-metadata.json"}}}, vfio)
	return want(got, err, "12 vfio")
}

// removedDeviceInfo removes a sandbox without a CNI DEL, and waits until the plugin has removed its device-info.
func (a *tenant) removedDeviceInfo() error {
	pod := a.h.RunPod(node.PodOptions{Name: a.name, Namespace: "dpdk-1"})
	file := fmt.Sprintf("/var/run/k8s.cni.cncf.io/devinfo/cni/dpdk-1-red-%s_net1", pod.ID)
	a.h.WriteFile(file, pci(vf(11)))
	defer os.Remove(file)
	pod.Remove()
	for range 200 {
		if _, err := os.Stat(file); err != nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s is left", file)
}

const vfio = "ls /dev/vfio 2>/dev/null | tr '\\n' ' '"

// mountFeatures are the features for which docs/reference/host-paths-and-capabilities.md says mounts are
// needed, by a word in the table below. Each works in a DaemonSet's pod that has all mounts.
func mountFeatures() map[string]func(a *tenant) error {
	return map[string]func(a *tenant) error{
		"CDI files of the administrator": func(a *tenant) error {
			return a.cdi("/etc/cdi", "etc", `{"env": ["VENDOR=etc"]}`, "echo $VENDOR", "etc")
		},
		"CDI files of vendors": func(a *tenant) error {
			return a.cdi("/run/cdi", "run", `{"env": ["VENDOR=run"]}`, "echo $VENDOR", "run")
		},
		"a device that came later": func(a *tenant) error {
			late := filepath.Join(hostDir, "dev", a.name)
			if err := unix.Mknod(late, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
				return err
			}
			defer os.Remove(late)
			return a.cdi("/run/cdi", "late", `{"deviceNodes": [{"path": "/dev/late", "hostPath": "/dev/`+a.name+`"}]}`, "head -c 2 /dev/late | xxd -p", "0000")
		},
		"a device in a file system that came later": func(a *tenant) error {
			dir := filepath.Join(hostDir, "dev/binderfs")
			return mountedAt(dir, func() error {
				if err := unix.Mknod(dir+"/binder", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
					return err
				}
				return a.cdi("/run/cdi", "fs", `{"deviceNodes": [{"path": "/dev/binder", "hostPath": "/dev/binderfs/binder"}]}`, "head -c 2 /dev/binder | xxd -p", "0000")
			})
		},
		"a socket of the host": func(a *tenant) error { return a.hostSocket(a.name, 0) },
		"a socket in a file system that came later": func(a *tenant) error {
			return mountedAt("/run/vsw/later", func() error { return a.hostSocket("later/"+a.name, 0) })
		},
		"the application's socket": func(a *tenant) error {
			return a.socket("server", "/var/run/vsw/"+a.name+"/app.sock", 0, "test -d $(dirname $JACKFIELD_NET1_SOCKET) && echo made", "made")
		},
		"another user's socket": func(a *tenant) error { return a.hostSocket(a.name, 1000) },
		"live sockets":          func(a *tenant) error { return mounted(a.t.Context(), a.h, a.name) },
		"the kubelet's word": func(a *tenant) error {
			a.allocated("acme.com/vf", vf(11))
			got, err := a.container(nil, func(pod *e2e.Pod) {
				a.h.WriteFile(fmt.Sprintf("/var/run/k8s.cni.cncf.io/devinfo/cni/dpdk-1-red-%s_net1", pod.ID), pci(vf(11)))
			}, node.ContainerOptions{}, vfio)
			return want(got, err, "11 vfio")
		},
		"a device plugin's own ID": func(a *tenant) error {
			a.allocated("acme.com/port", "port-7")
			a.h.WriteFile("/var/run/k8s.cni.cncf.io/devinfo/dp/acme.com-port-port-7-device.json", pci(vf(12)))
			got, err := a.container(nil, nil, node.ContainerOptions{Env: []string{"PCIDEVICE_ACME_COM_PORT=port-7"}}, vfio)
			return want(got, err, "12 vfio")
		},
		"a network without device-info": func(a *tenant) error {
			a.allocated("acme.com/vf", vf(13))
			got, err := a.container(map[string]string{"k8s.v1.cni.cncf.io/networks": "red"}, func(pod *e2e.Pod) {
				a.h.WriteFile("/var/lib/cni/multus/"+pod.ID, `[{"Name": "cbr0", "Conf": {"name": "cbr0"}},
					{"Name": "dpdk-1/red", "Conf": {"name": "red"}, "deviceID": "`+vf(13)+`", "resourceName": "acme.com/vf"}]`)
			}, node.ContainerOptions{}, "echo $JACKFIELD_NET1_PCI")
			return want(got, err, vf(13))
		},
		"a removed sandbox's device-info": (*tenant).removedDeviceInfo,
		"a claim's metadata":              func(a *tenant) error { return a.claim("present.example.com") },
		"a claim's metadata in a file system that came later": func(a *tenant) error {
			return mountedAt(filepath.Join(pluginsDir, "later.example.com"), func() error { return a.claim("later.example.com") })
		},
		"a label of now": func(a *tenant) error {
			a.h.WriteFile("/run/cdi/"+a.name+".json", `{"cdiVersion": "0.6.0", "kind": "labelled.com/now", "devices": [
				{"name": "dev", "containerEdits": {"env": ["LABELLED=yes"]}}]}`)
			defer os.Remove("/run/cdi/" + a.name + ".json")
			got, err := a.container(map[string]string{"devices.jackfield.dev": "labelled.com/now=dev"}, func(pod *e2e.Pod) {
				a.pods.SetPods(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "dpdk-1", Name: a.name, UID: types.UID(pod.UID()),
					Labels: map[string]string{"example.com/now": "yes"}}})
			}, node.ContainerOptions{}, "echo $LABELLED")
			return want(got, err, "yes")
		},
		// The plugin runs.
		"": func(*tenant) error { return nil },
	}
}

func pci(address string) string {
	return fmt.Sprintf(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": %q}}`, address)
}
