// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/nri/pkg/api"

	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The runtime does not report that a creation failed after its NRI part. At most the last attempt
// under a container's name is left on the host. It is not in the status and counts against no limit.
func TestFailedCreationsLeaveOneAttempt(t *testing.T) {
	const limited = `
sockets: {roots: [/var/run/vsw]}
policy:
  rules:
    - name: r
      for: {namespaces: ["*"]}
      allow: {cdi: ["vendor.com/net=*"], sockets: ["/var/run/vsw/**"]}
      limits: {pod: {cdi: 1}}
`
	n := newNode(t, limited, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	n.listen(vswitch.VhostUser, "/run/vsw/p1/vhost.sock")
	ctx := context.Background()
	newPod := func() *api.PodSandbox {
		t.Helper()
		pod := nritest.NewPod("ns", "p", map[string]string{"devices.jackfield.dev/container.a": "vendor.com/net=a", "devices.jackfield.dev/container.b": "vendor.com/net=b"})
		n.devinfo(pod, "vhost-net", "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/p1/vhost.sock"}}`)
		check(t, n.runtime.RunPodSandbox(ctx, pod))
		return pod
	}
	staged := func() []string {
		t.Helper()
		entries, err := os.ReadDir(n.path("/run/jackfield/containers"))
		check(t, err)
		var ids []string
		for _, e := range entries {
			ids = append(ids, filepath.Base(e.Name()))
		}
		return ids
	}
	named := func(name string) func(*api.Container) {
		return func(c *api.Container) { c.Name = name }
	}
	first := newPod()
	running, err := n.create(first, named("a"))
	check(t, err)
	check(t, n.runtime.StartContainer(ctx, first, running.Container))
	n.status("the container that runs", containers(1))

	pod := newPod()
	var last string
	for range 10 {
		c := &api.Container{Name: "a", Env: []string{"PATH=/bin"}, Linux: &api.LinuxContainer{}}
		c = nritest.Shown(pod, c, nritest.BaseSpec(c))
		last = c.Id
		_, err := n.runtime.Adjust(ctx, pod, c)
		check(t, err)
	}
	if got := staged(); len(got) != 2 {
		t.Errorf("after ten tries there are %d staging directories, want that of the container that runs and that of the last try", len(got))
	}
	n.status("without what never started", containers(1))
	// The other container of the pod gets what the failed one does not have.
	b, err := n.create(pod, named("b"))
	check(t, err)
	check(t, n.runtime.StartContainer(ctx, pod, b.Container))
	n.status("with the other container", containers(2))
	if _, err := n.create(pod, named("a")); err == nil {
		t.Error("the first container got a device beyond the pod's limit")
	}
	if got := staged(); len(got) != 2 {
		t.Errorf("the last try %s is still among %q", last, got)
	}
	check(t, n.runtime.RemovePodSandbox(ctx, pod))

	// A container that runs keeps what it has, whatever is created beside it.
	if _, err := n.create(first, named("b")); err == nil {
		t.Error("another container got a device beyond the pod's limit")
	}
	if got := staged(); len(got) != 1 || got[0] != running.Container.Id {
		t.Errorf("the container that runs has lost its staging directory: %q", got)
	}
}
