// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/staging"
)

// A rule that is taken away takes nothing from containers that run: neither when their
// networks are looked at again, nor when another of them comes or goes.
func TestARuleThatIsTakenAwayTakesNothingFromRunningContainers(t *testing.T) {
	root := t.TempDir()
	// Mounts below it propagate, as on a host.
	err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("mount a tmpfs: %v", err)
	} else if err != nil {
		t.Skipf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { check(t, unix.Unmount(root, unix.MNT_DETACH)) })
	check(t, unix.Mount("", root, "", unix.MS_SHARED, ""))
	const config = "sockets: {staging: mount, roots: [/run/vsw]}\npolicy: {rules: [%s]}\n"
	const rule = `{name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}`
	h := newReloadHostIn(t, root, fmt.Sprintf(config, rule), false)
	if st := h.p.core.Load().store.Status(); st.Mode != staging.Mounts {
		t.Fatalf("sockets are not bound here: %s", st.Reason)
	}
	pod := &api.PodSandbox{Id: strings.Repeat("a", 64), Namespace: "ns", Name: "p"}
	info := func(ifName, mode, path string) string {
		file := filepath.Join(root, "var/run/k8s.cni.cncf.io/devinfo/cni", "ns-"+ifName+"-"+pod.Id+"_"+ifName)
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, fmt.Appendf(nil, `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":%q,"path":%q}}`, mode, path), 0o644))
		return file
	}
	listen := func(path string) {
		path = filepath.Join(root, path)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		l, err := net.Listen("unix", path)
		check(t, err)
		t.Cleanup(func() { l.Close() })
	}
	listen("run/vsw/1/s")
	listen("run/vsw/2/s")
	info("net1", "client", "/run/vsw/1/s")
	second := info("net2", "client", "/run/vsw/2/s")
	info("net3", "server", "/run/vsw/3/s")
	c := &api.Container{Id: strings.Repeat("b", 64), PodSandboxId: pod.Id, Name: "c"}
	adjust, _, err := h.p.CreateContainer(context.Background(), pod, c)
	check(t, err)
	t.Cleanup(func() { check(t, h.p.RemovePodSandbox(context.Background(), pod)) })
	view := func() string {
		data, err := os.ReadFile(filepath.Join(root, "run/jackfield/containers", c.Id, "devices.json"))
		check(t, err)
		var names []string
		for _, name := range []string{"net1", "net2", "net3", "net4"} {
			if strings.Contains(string(data), `"interface": "`+name+`"`) {
				names = append(names, name)
			}
		}
		return strings.Join(names, " ")
	}
	has := func(what, want string) {
		t.Helper()
		var got string
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			if got = view(); got == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the container has %q, want %q", what, got, want)
			}
		}
	}
	has("at its creation", "net1 net2 net3")
	h.rename(fmt.Sprintf(config, ""))
	h.wait("no rule", generation(2))

	// One goes: that it is gone shows that the others were looked at.
	check(t, os.Remove(second))
	has("without a rule", "net1 net3")
	// What comes now needs a rule, also at a place that was granted.
	listen("run/vsw/4/s")
	info("net4", "client", "/run/vsw/4/s")
	info("net1", "client", "/run/vsw/4/s")
	has("another socket", "net3")
	_, err = h.p.Synchronize(context.Background(), []*api.PodSandbox{pod}, []*api.Container{
		{Id: c.Id, PodSandboxId: pod.Id, Name: "c", Mounts: adjust.GetMounts()}})
	check(t, err)
	h.rename(fmt.Sprintf(config, rule))
	h.wait("the rule again", generation(3))
	h.p.hotplug.changed("")
	has("with the rule again", "net1 net3 net4")
}
