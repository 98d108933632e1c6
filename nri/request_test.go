// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
)

func containerWith(namespaces ...*api.LinuxNamespace) *api.Container {
	return &api.Container{Linux: &api.LinuxContainer{Namespaces: namespaces}}
}

func TestUserNamespaceProcessIsFromPathOrPod(t *testing.T) {
	pod := &api.PodSandbox{Id: "s", Pid: 77}
	for path, want := range map[string]int{
		"/proc/123/ns/user": 123, "": 77, "/var/run/userns/1b2c": 77,
		"/proc/../ns/user": 77, "/proc/-1/ns/user": 77, "/proc/99999999999/ns/user": 77, "/proc/1/root/ns/user": 77,
	} {
		c := containerWith(&api.LinuxNamespace{Type: "pid"}, &api.LinuxNamespace{Type: "user", Path: path})
		if r := newRequest("containerd", pod, c); r.UserNS == nil || r.UserNS.PID != want {
			t.Errorf("%q: %+v, want process %d", path, r.UserNS, want)
		}
	}
	// CRI-O pins the namespace of a pod, in which no process is.
	const path = "/var/run/userns/1b2c"
	pinned := containerWith(&api.LinuxNamespace{Type: "user", Path: path})
	r := newRequest("cri-o", &api.PodSandbox{Id: "s"}, pinned)
	if r.UserNS == nil || r.UserNS.PID != 0 || r.UserNS.Path != path {
		t.Errorf("a pinned namespace is %+v", r.UserNS)
	}
	if r := newRequest("containerd", pod, containerWith(&api.LinuxNamespace{Type: "pid"})); r.UserNS != nil {
		t.Errorf("without a user namespace: %+v", r.UserNS)
	}
	if r := newRequest("containerd", pod, nil); r.UserNS != nil {
		t.Errorf("a sandbox: %+v", r.UserNS)
	}
}

// The image is known from containerd's annotation. CRI-O reports some name of the same content, and
// copies the pod's annotations to its containers, including forged ones: there the image is
// unknown.
func TestImageIsKnownFromContainerdOnly(t *testing.T) {
	const containerd, crio = "io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName"
	for _, tc := range []struct {
		runtime     string
		annotations map[string]string
		want        string
	}{
		{"containerd", map[string]string{containerd: "a"}, "a"},
		{"containerd", map[string]string{containerd: "a", crio: "forged"}, "a"},
		{"containerd", map[string]string{crio: "forged"}, ""},
		{"cri-o", map[string]string{crio: "b"}, ""},
		{"cri-o", map[string]string{crio: "b", containerd: "forged"}, ""},
		{"cri-o", map[string]string{containerd: "forged"}, ""},
		{"other", map[string]string{crio: "forged", containerd: "forged"}, ""},
	} {
		pod, c := &api.PodSandbox{Annotations: tc.annotations}, &api.Container{Annotations: tc.annotations}
		if r := newRequest(tc.runtime, pod, c); r.Image != tc.want {
			t.Errorf("%s with %v: image %q, want %q", tc.runtime, tc.annotations, r.Image, tc.want)
		}
	}
}

// The runtime reports no IPC namespace for a pod that shares the host's. A runtime that reports no namespace at all
// leaves it unknown.
func TestPodSharesHostIPC(t *testing.T) {
	for name, tc := range map[string]struct {
		types []string
		want  bool
	}{
		"own":     {[]string{"pid", "ipc", "network"}, false},
		"host's":  {[]string{"pid", "network"}, true},
		"unknown": {nil, false},
	} {
		pod := &api.PodSandbox{Linux: &api.LinuxPodSandbox{}}
		for _, ns := range tc.types {
			pod.Linux.Namespaces = append(pod.Linux.Namespaces, &api.LinuxNamespace{Type: ns})
		}
		if got := newRequest("containerd", pod, nil).HostIPC; got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
