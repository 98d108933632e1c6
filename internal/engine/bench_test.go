// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// BenchmarkResolve measures the engine without an adapter: for a container with four CDI devices and two sockets, and
// for a container without requests.
func BenchmarkResolve(b *testing.B) {
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp(benchmarkDir(), "jf")
	check(err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{"cdi", "vsw/p0", "vsw/p1", "cni"} {
		check(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for i := range 10 {
		check(os.WriteFile(filepath.Join(dir, fmt.Sprintf("cdi/d%d.json", i)), fmt.Appendf(nil,
			`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"d%d","containerEdits":{"env":["D%d=1"],
			 "deviceNodes":[{"path":"/dev/d%d","type":"c","major":1,"minor":%d}],
			 "mounts":[{"hostPath":"/run/vendor","containerPath":"/opt/vendor%d","options":["ro","bind"]}]}}]}`, i, i, i, i+3, i), 0o644))
	}
	for i, info := range []string{
		`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"DIR/vsw/p0/s"}}`,
		`{"type":"memif","version":"1.1.0","memif":{"role":"slave","mode":"ethernet","path":"DIR/vsw/p1/s"}}`,
	} {
		l, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf("vsw/p%d/s", i)))
		check(err)
		b.Cleanup(func() { l.Close() })
		info = strings.ReplaceAll(info, "DIR", dir)
		check(os.WriteFile(filepath.Join(dir, fmt.Sprintf("cni/dpdk-1-nad%d-sandbox_net%d", i, i)), []byte(info), 0o644))
	}
	cfg, err := config.Parse([]byte(strings.ReplaceAll(`
cdi: {specDirs: [DIR/cdi]}
sockets: {roots: [DIR/vsw]}
deviceInfo: {cniDir: DIR/cni}
policy:
  rules:
    - name: r
      for: {namespaces: ["dpdk-*"]}
      allow: {cdi: ["vendor.com/net=*"], sockets: ["DIR/vsw/**"]}
`, "DIR", dir)), "/etc/jackfield/config.yaml")
	check(err)
	e, err := New(hostfs.Host(), cfg, Options{})
	check(err)
	b.Cleanup(func() { check(e.Close()) })
	full := &Request{SandboxID: "sandbox", ContainerID: "c", Namespace: "dpdk-1", Pod: "p", Container: "c",
		Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=d0,vendor.com/net=d1,vendor.com/net=d2,vendor.com/net=d3"}}
	none := &Request{SandboxID: "other", ContainerID: "c", Namespace: "dpdk-1", Pod: "p", Container: "c", Annotations: map[string]string{"a": "b"}}
	for name, req := range map[string]*Request{"full": full, "nothing": none} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plan, err := e.Resolve(context.Background(), req)
				if err != nil || (plan == nil) != (req == none) {
					b.Fatal(plan, err)
				}
			}
		})
	}
}

// benchmarkDir returns /run, a tmpfs as on a node, or "" if the user cannot write there.
func benchmarkDir() string {
	if dir, err := os.MkdirTemp("/run", "jf"); err == nil {
		os.Remove(dir)
		return "/run"
	}
	return ""
}
