// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The tests of this file run jackfield-hook under CRI-O, as `make install-crio-hook` installs it.

const hookSpec = `{"cdiVersion": "1.1.0", "kind": "vendor.com/net", "devices": [
	{"name": "dev0", "containerEdits": {
		"deviceNodes": [{"path": "/dev/vendor0", "hostPath": "/run/devs/zero"},
			{"path": "/dev/ro", "hostPath": "/run/devs/char", "permissions": "r"}],
		"mounts": [{"hostPath": "/run/vendor/lib", "containerPath": "/opt/vendor", "options": ["ro", "rbind"]}]}},
	{"name": "user0", "containerEdits": {"deviceNodes": [{"path": "/run/devs/zero"}]}},
	{"name": "netdev", "containerEdits": {"netDevices": [{"hostInterfaceName": "jfnd0", "name": "fast0"}]}},
	{"name": "env", "containerEdits": {"env": ["A=1"]}},
	{"name": "hook", "containerEdits": {"hooks": [{"hookName": "createRuntime", "path": "/bin/true"}]}}]}`

// eachCRIOWithHook runs a test on nodes of CRI-O with the hook and its devices.
func eachCRIOWithHook(t *testing.T, o node.Options, config string, f func(t *testing.T, h *e2e.H)) {
	t.Helper()
	e2e.Require(t)
	for _, g := range []node.Generation{node.CRIO, node.CRIOCrun} {
		t.Run(string(g), func(t *testing.T) {
			o.Generation, o.SystemConfig = g, true
			h := e2e.Fresh(t, o)
			h.MkdirAll("/run/vsw")
			h.CharDevice("/run/devs/zero", 1, 5)
			h.CharDevice("/run/devs/char", 10, 237)
			h.WriteFile("/run/vendor/lib/driver.so", "library")
			h.WriteFile("/etc/cdi/vendor.json", hookSpec)
			installHook(t, h, config)
			f(t, h)
		})
	}
}

func requestPod(h *e2e.H, name, namespace, device string, userNS uint32) *e2e.Pod {
	return h.RunPod(node.PodOptions{Name: name, Namespace: namespace, UserNS: userNS,
		Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=" + device}})
}

// With NRI off, the hook delivers device nodes with their exact access, mounts, and sockets in both roles, also to a
// container with a read-only root file system and to one of a user namespace. It refuses what the policy denies, and
// edits for which it runs too late.
func TestHookOnCRIO(t *testing.T) {
	eachCRIOWithHook(t, node.Options{NoNRI: true}, nodeConfig, func(t *testing.T, h *e2e.H) {
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		for _, readOnly := range []bool{false, true} {
			// The directory belongs to the pod for some minutes after its end.
			path := fmt.Sprintf("/run/vsw/%s-%t/app.sock", h.Generation(), readOnly)
			pod := requestPod(h, fmt.Sprintf("read-only-%t", readOnly), "dpdk-1", "dev0", 0)
			devinfo(h, pod, "red", "net1", vhostUser("client", "/run/vsw/port1/vhost.sock"))
			devinfo(h, pod, "blue", "net2", vhostUser("server", path))
			ctr := pod.Run(node.ContainerOptions{ReadonlyRootfs: readOnly})
			const use = "head -c 4 /dev/vendor0 | xxd -p; : < /dev/ro && echo read; (: <> /dev/ro) 2>/dev/null || echo denied; " +
				"cat /opt/vendor/driver.so; echo; sockclient connect /run/vsw/port1/vhost.sock"
			want := "00000000\nread\ndenied\nlibrary\n" + vswitch.Greeting("vhost-user")
			if got := ctr.Output("sh", "-c", use); got != want {
				t.Errorf("inside:\n%s\nwant:\n%s", got, want)
			}
			second := pod.Run(node.ContainerOptions{Name: "app", Command: []string{"sockclient", "listen", path, "from inside"}})
			second.WaitLogs("listening")
			if got, err := vswitch.Ask(t.Context(), path); err != nil || got != "from inside" {
				t.Errorf("the application's socket answers %q, %v", got, err)
			}
			pod.Remove()
		}
		user := requestPod(h, "user", "dpdk-1", "user0", 200000)
		ctr := user.Run(node.ContainerOptions{})
		if got := ctr.Output("sh", "-c", "head -c 4 /run/devs/zero | xxd -p"); got != "00000000" {
			t.Errorf("in a user namespace the device has %q", got)
		}
		for device, want := range map[string]string{"none": "vendor.com/net=none", "env": `"A"`, "hook": "/bin/true", "netdev": "jfnd0"} {
			err := requestPod(h, "refused-"+device, "dpdk-1", device, 0).CreateFails(node.ContainerOptions{})
			if text := strings.ReplaceAll(err.Error(), `\`, ""); !strings.Contains(text, want) {
				t.Errorf("%s: the error does not name %s: %v", device, want, err)
			}
		}
		err := requestPod(h, "denied", "web", "dev0", 0).CreateFails(node.ContainerOptions{})
		if !strings.Contains(err.Error(), "dpdk-tenants") {
			t.Errorf("a pod without a rule: %v", err)
		}
	})
}

// The hook and the plugin are both there. The container has each edit once, in both ways of staging sockets, and the
// hook logs that it leaves the container to the plugin.
func TestHookBesidePluginOnCRIO(t *testing.T) {
	for _, staging := range []string{"mount", "directory"} {
		t.Run(staging, func(t *testing.T) {
			config := strings.Replace(nodeConfig, "sockets: {", "sockets: {staging: "+staging+", ", 1)
			eachCRIOWithHook(t, node.Options{}, config, func(t *testing.T, h *e2e.H) {
				h.StartPlugin(node.PluginOptions{Config: config})
				h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
				pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1",
					Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=dev0,vendor.com/net=env"}})
				devinfo(h, pod, "red", "net1", vhostUser("client", "/run/vsw/port1/vhost.sock"))
				ctr := pod.Run(node.ContainerOptions{})
				if got := ctr.Output("sh", "-c", "head -c 4 /dev/vendor0 | xxd -p; echo $A"); got != "00000000\n1" {
					t.Errorf("inside: %q", got)
				}
				answers(t, ctr)
				for _, at := range []string{"/opt/vendor", "/dev/vendor0"} {
					if n := ctr.Output("sh", "-c", "grep -c ' "+at+" ' /proc/self/mountinfo; true"); n != "1" && n != "0" {
						t.Errorf("%s is mounted %s times", at, n)
					}
				}
			})
		})
	}
}

// A container without the kubelet's labels has no name in CRI-O before 1.37. A request for one container of its pod is
// then refused, because it may be for this container.
func TestRequestForContainerWithoutName(t *testing.T) {
	h := e2e.Fresh(t, node.Options{Generation: node.CRIO})
	h.WriteFile("/etc/cdi/vendor.json", requiredSpec)
	h.StartPlugin(node.PluginOptions{Config: nodeConfig})
	pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1",
		Annotations: map[string]string{"devices.jackfield.dev/container.main": "vendor.com/net=a"}})
	checkInjected(t, pod.Run(node.ContainerOptions{}))
	err := pod.CreateFails(node.ContainerOptions{Attempt: 1, WithoutLabels: true})
	if !strings.Contains(err.Error(), "devices.jackfield.dev/container.main") {
		t.Errorf("the refusal is %v", err)
	}
}
