// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"slices"
	"strings"
	"testing"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestSubjectComesFromRuntimeAnnotations(t *testing.T) {
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        subject
		err         string
	}{
		{name: "Podman", annotations: map[string]string{managerKey: podman, crioSandboxID: "pod"}, want: subject{sandbox: "id", container: "id"}},
		{name: "no manager", want: subject{sandbox: "id", container: "id"}},
		{name: "CRI-O", annotations: map[string]string{crioSandboxID: "s", crioType: "container", labelNamespace: "spoofed",
			crioLabels: `{"io.kubernetes.pod.namespace":"ns","io.kubernetes.pod.name":"p","io.kubernetes.pod.uid":"u","io.kubernetes.container.name":"c"}`},
			want: subject{sandbox: "s", namespace: "ns", pod: "p", uid: "u", container: "c", ofPod: true}},
		{name: "CRI-O's sandbox", annotations: map[string]string{crioSandboxID: "s", crioType: "sandbox", labelNamespace: "ns"},
			want: subject{sandbox: "s", namespace: "ns", pause: true, ofPod: true}},
		{name: "CRI-O without a namespace", annotations: map[string]string{crioSandboxID: "s", crioLabels: "{}"}, err: "is missing"},
		{name: "CRI-O with the author's namespace", annotations: map[string]string{crioSandboxID: "s", labelNamespace: "spoofed", crioLabels: "{}"}, err: "is missing"},
		{name: "CRI-O with broken labels", annotations: map[string]string{crioSandboxID: "s", crioLabels: "["}, err: "annotation io.kubernetes.cri-o.Labels: 1:2: found the end of the text"},
		{name: "containerd", annotations: map[string]string{ctrdSandboxID: "s", ctrdType: "container", ctrdNamespace: "ns", ctrdPod: "p", ctrdUID: "u", ctrdName: "c"},
			want: subject{sandbox: "s", namespace: "ns", pod: "p", uid: "u", container: "c", ofPod: true}},
		{name: "containerd without a namespace", annotations: map[string]string{ctrdSandboxID: "s"}, err: "is missing"},
		{name: "CRI-O and containerd", annotations: map[string]string{ctrdSandboxID: "s", crioSandboxID: "s"}, err: "found both"},
		// A runtime may be configured to pass Podman's annotation from the pod to the container.
		{name: "containerd with Podman's annotation", annotations: map[string]string{managerKey: podman, ctrdSandboxID: "s", ctrdNamespace: "ns"}, err: "found both"},
	} {
		got, err := subjectOf(tc.annotations, "id")
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
			}
		case err != nil || got != tc.want:
			t.Errorf("%s: %+v, %v, want %+v", tc.name, got, err, tc.want)
		}
	}
}

// CRI-O writes some annotations for sandboxes only. In the configuration of a container they come from the pod's
// author, so they are ignored: a rule for another runtime class must not apply.
func TestSubjectIgnoresPodAuthorsAnnotations(t *testing.T) {
	annotations := map[string]string{crioSandboxID: "s", crioType: "container", crioLabels: `{"io.kubernetes.pod.namespace":"ns"}`,
		crioPrefix + "RuntimeHandler": "kata", crioPrefix + "ContainerName": "trusted"}
	s, err := subjectOf(annotations, "id")
	if err != nil {
		t.Fatal(err)
	}
	if req := s.request("id", annotations, &rspec.Spec{}, 0); req.RuntimeHandler != "" || !req.HandlerUnknown || !req.LabelsUnknown || req.Container != "" || req.Namespace != "ns" {
		t.Errorf("request %+v", req)
	}
}

func TestDeviceVariablesOfImageAreIgnored(t *testing.T) {
	env := []string{"A=1", "PCIDEVICE_X=0000:00:01.0", "B=2", "PCIDEVICE_Y=1"}
	if got := withoutDeviceVariables(env); !slices.Equal(got, []string{"A=1", "B=2"}) || len(env) != 4 || env[1] != "PCIDEVICE_X=0000:00:01.0" {
		t.Error(got, env)
	}
	if got := withoutDeviceVariables(env[:1]); !slices.Equal(got, env[:1]) {
		t.Error(got)
	}
}

func TestPodmanIDIsFoundInConfiguration(t *testing.T) {
	id, pod := strings.Repeat("0a", 32), strings.Repeat("f1", 32)
	for _, spec := range []*rspec.Spec{
		{Linux: &rspec.Linux{CgroupsPath: "machine.slice:libpod:" + id}},
		{Linux: &rspec.Linux{CgroupsPath: "/libpod_parent/libpod-" + id}},
		// The container of a pod: the pod's cgroup is the parent.
		{Linux: &rspec.Linux{CgroupsPath: "machine-libpod_pod_" + pod + ".slice:libpod:" + id}},
		{Linux: &rspec.Linux{CgroupsPath: "/libpod_parent/" + pod + "/libpod-" + id}},
		{Linux: &rspec.Linux{CgroupsPath: "/kubepods/podx/" + pod + "/libpod-payload-" + id}},
		{Linux: &rspec.Linux{}, Mounts: []rspec.Mount{{Source: "proc"}, {Source: "/run/containers/storage/overlay-containers/" + id + "/userdata/hosts"}}},
		{Linux: &rspec.Linux{}, Mounts: []rspec.Mount{{Source: "/srv/old-containers/x" + id}, {Source: "/run/user/1000/containers/vfs-containers/" + id + "/userdata/hosts"}}},
		// The container joins the network of another container, whose files are mounted.
		{Linux: &rspec.Linux{}, Mounts: []rspec.Mount{{Destination: "/etc/hosts", Source: "/run/user/1000/containers/vfs-containers/" + pod + "/userdata/hosts"},
			{Destination: "/run/.containerenv", Source: "/run/user/1000/containers/vfs-containers/" + id + "/userdata/.containerenv"},
			{Destination: "/etc/resolv.conf", Source: "/run/user/1000/containers/vfs-containers/" + pod + "/userdata/resolv.conf"}}},
	} {
		if got := podmanID(spec); got != id {
			t.Errorf("%+v: %s", spec, got)
		}
	}
	a, b := podmanID(&rspec.Spec{Root: &rspec.Root{Path: "/a"}}), podmanID(&rspec.Spec{Root: &rspec.Root{Path: "/b"}})
	if a == b || a != podmanID(&rspec.Spec{Root: &rspec.Root{Path: "/a"}}) || !validID(a) {
		t.Error(a, b)
	}
	for _, none := range []string{"", id[1:], id + "0", "g" + id[1:]} {
		if got, ok := findHexID(none); ok {
			t.Errorf("%s: %s", none, got)
		}
	}
}

// The user namespace is known from the container's process, from the process whose namespace it joins, or from the
// mappings of config.json.
func TestUserNamespaceIsFromProcessPathOrMappings(t *testing.T) {
	spec := func(path string) *rspec.Spec {
		return &rspec.Spec{Linux: &rspec.Linux{
			Namespaces:  []rspec.LinuxNamespace{{Type: rspec.MountNamespace}, {Type: rspec.UserNamespace, Path: path}},
			UIDMappings: []rspec.LinuxIDMapping{{ContainerID: 1, HostID: 100000, Size: 65535}}, GIDMappings: []rspec.LinuxIDMapping{{HostID: 5, Size: 1}}}}
	}
	for _, none := range []*rspec.Spec{{}, {Linux: &rspec.Linux{Namespaces: []rspec.LinuxNamespace{{Type: rspec.MountNamespace}}}}} {
		if got := userNamespaceOf(none, 7); got != nil {
			t.Errorf("%+v", got)
		}
	}
	if got := userNamespaceOf(spec(""), 7); got.PID != 7 {
		t.Errorf("%+v", got)
	}
	if got := userNamespaceOf(spec("/proc/8/ns/user"), 0); got.PID != 8 {
		t.Errorf("%+v", got)
	}
	for _, path := range []string{"/run/userns/x", "/proc/self/ns/user", "/proc/8/ns/mnt", "/proc/-1/ns/user"} {
		if got := userNamespaceOf(spec(path), 0); got.PID != 0 || got.UIDs != nil {
			t.Errorf("%s: %+v", path, got)
		}
	}
	got := userNamespaceOf(spec(""), 0)
	if got.PID != 0 || !slices.Equal(got.UIDs, []hostfs.IDMap{{Inside: 1, Outside: 100000, Size: 65535}}) || !slices.Equal(got.GIDs, []hostfs.IDMap{{Outside: 5, Size: 1}}) {
		t.Errorf("%+v", got)
	}
}

// If a container's runtime class is unknown, no rule for the default class grants anything to it, and a deny rule for
// any class applies to it.
func TestUnknownRuntimeClassIsNotTheDefault(t *testing.T) {
	rule := policy.Rule{Name: "default-class", For: policy.Subjects{RuntimeClasses: []string{""}}, Allow: policy.Allow{CDI: []string{"*"}}}
	allow, err := policy.New("config.yaml", policy.Enforce, []policy.Rule{rule})
	if err != nil {
		t.Fatal(err)
	}
	rule.Deny, rule.For = rule.Allow, policy.Subjects{RuntimeClasses: []string{"kata"}}
	rule.Allow = policy.Allow{}
	deny, err := policy.New("config.yaml", policy.Enforce, []policy.Rule{{Name: "wide", For: policy.Subjects{Namespaces: []string{"*"}}, Allow: policy.Allow{CDI: []string{"*"}}}, rule})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]subject{"a pod's": {namespace: "ns", ofPod: true}, "Podman's": {}} {
		subject := engine.Subject(s.request("id", nil, &rspec.Spec{}, 0))
		if _, err := allow.CDI(subject, "v.com/c=x"); err == nil {
			t.Errorf("%s container is granted by a rule for the default class", name)
		}
		if _, err := deny.CDI(subject, "v.com/c=x"); err == nil {
			t.Errorf("%s container is not denied by a rule for a class", name)
		}
	}
}

// Outside of a pod, no device plugin sets variables: the image or the user did. They are left out of the request.
func TestRequestWithoutDevices(t *testing.T) {
	spec := &rspec.Spec{Process: &rspec.Process{Env: []string{"A=1", "PCIDEVICE_X=0000:00:01.0"}}}
	for _, ofPod := range []bool{false, true} {
		s := subject{sandbox: "s", namespace: "ns", ofPod: ofPod}
		if has := slices.Contains(s.request("id", nil, spec, 0).Have.Env, "PCIDEVICE_X=0000:00:01.0"); has != ofPod {
			t.Errorf("container of a pod %t: variable in the request %t", ofPod, has)
		}
	}
}
