// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
)

func TestTheProcessOfAUserNamespace(t *testing.T) {
	pod := &api.PodSandbox{Id: "s", Pid: 77}
	for path, want := range map[string]int{
		"/proc/123/ns/user": 123, "": 77, "/var/run/userns/1b2c": 77,
		"/proc/../ns/user": 77, "/proc/-1/ns/user": 77, "/proc/99999999999/ns/user": 77, "/proc/1/root/ns/user": 77,
	} {
		c := &api.Container{Linux: &api.LinuxContainer{Namespaces: []*api.LinuxNamespace{{Type: "pid"}, {Type: "user", Path: path}}}}
		if r := request(pod, c); r.UserNS == nil || r.UserNS.PID != want {
			t.Errorf("%q: %+v, want process %d", path, r.UserNS, want)
		}
	}
	if r := request(pod, &api.Container{Linux: &api.LinuxContainer{Namespaces: []*api.LinuxNamespace{{Type: "pid"}}}}); r.UserNS != nil {
		t.Errorf("without a user namespace: %+v", r.UserNS)
	}
	if r := request(pod, nil); r.UserNS != nil {
		t.Errorf("a sandbox: %+v", r.UserNS)
	}
}
