// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	nritest "github.com/jackfield/jackfield/test/nri"
)

const gpuSpec = `{"cdiVersion":"0.7.0","kind":"vendor.com/gpu","devices":[
 {"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/card1","type":"c","major":226,"minor":1,"fileMode":8624,"gid":44}],"additionalGids":[44]}},
 {"name":"roots","containerEdits":{"deviceNodes":[{"path":"/dev/card1","type":"c","major":226,"minor":1,"uid":0,"gid":44}],"additionalGids":[44]}},
 {"name":"shm","containerEdits":{"mounts":[{"hostPath":"/srv/shm","containerPath":"/dev/shm","options":["bind"]}]}}]}`

const gpuPolicy = `policy: {rules: [{name: ml, for: {namespaces: [ml]}, allow: {cdi: ["vendor.com/*"]}}]}`

// TestGroupOfCDIFileIsRefusedOnlyWhereNeeded checks additionalGids, for which NRI has no field.
func TestGroupOfCDIFileIsRefusedOnlyWhereNeeded(t *testing.T) {
	n := newNode(t, gpuPolicy, nritest.Options{})
	n.write("/etc/cdi/gpu.json", gpuSpec)
	for name, tc := range map[string]struct {
		device  string
		user    *api.User
		refused string
	}{
		"owner of the node":      {"0", &api.User{Uid: 1000, Gid: 1000}, ""},
		"root":                   {"0", &api.User{}, ""},
		"member of the group":    {"roots", &api.User{Uid: 1000, Gid: 1000, AdditionalGids: []uint32{44}}, ""},
		"group of the user":      {"roots", &api.User{Uid: 1000, Gid: 44}, ""},
		"neither owner nor root": {"roots", &api.User{Uid: 1000, Gid: 1000}, "add 44 to supplementalGroups"},
		"unknown user":           {"roots", nil, "--feature-flag=no-additional-gids-for-device-nodes"},
	} {
		pod := n.pod("ml", map[string]string{"devices.jackfield.dev": "vendor.com/gpu=" + tc.device})
		c, err := n.create(pod, func(c *api.Container) { c.User = tc.user })
		switch {
		case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
			t.Errorf("%s: %v", name, err)
		case tc.refused == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.device == "0" && *c.Spec.Linux.Devices[0].FileMode > 0o777:
			t.Errorf("%s: %+v", name, c.Spec.Linux.Devices)
		}
	}
}

// TestCDIMountReplacesRuntimeMount checks a CDI mount over /dev/shm, which containerd and CRI-O mount into every container.
func TestCDIMountReplacesRuntimeMount(t *testing.T) {
	n := newNode(t, gpuPolicy, nritest.Options{})
	n.write("/etc/cdi/gpu.json", gpuSpec)
	for name, tc := range map[string]struct {
		mount   rspec.Mount
		refused bool
	}{
		"containerd": {rspec.Mount{Type: "bind", Source: "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/abc/shm", Options: []string{"rbind"}}, false},
		"CRI-O":      {rspec.Mount{Type: "bind", Source: "/run/containers/storage/overlay-containers/abc/userdata/shm", Options: []string{"rbind"}}, false},
		"hostIPC":    {rspec.Mount{Type: "bind", Source: "/dev/shm", Options: []string{"rbind"}}, false},
		"tmpfs":      {rspec.Mount{Type: "tmpfs", Source: "shm"}, false},
		"volume":     {rspec.Mount{Type: "bind", Source: "/var/lib/kubelet/pods/UID/volumes/kubernetes.io~empty-dir/shm", Options: []string{"rbind"}}, true},
	} {
		pod := n.pod("ml", map[string]string{"devices.jackfield.dev": "vendor.com/gpu=shm"})
		tc.mount.Destination = "/dev/shm"
		c, err := n.create(pod, func(c *api.Container) { c.Mounts = api.FromOCIMounts([]rspec.Mount{tc.mount}) })
		if tc.refused {
			if err == nil || !strings.Contains(err.Error(), "remove the pod's mount or the request") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var sources []string
		for _, m := range c.Spec.Mounts {
			if m.Destination == "/dev/shm" {
				sources = append(sources, m.Source)
			}
		}
		if !slices.Equal(sources, []string{"/srv/shm"}) {
			t.Errorf("%s: /dev/shm comes from %q", name, sources)
		}
	}
}
