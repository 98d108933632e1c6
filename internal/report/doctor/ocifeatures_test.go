// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Nothing else reports an OCI runtime that does not know a field: it leaves the field out without an error.
func TestEveryOCIRuntimeIsAskedForItsFeatures(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	program := func(name, answer string) string {
		return write(name, "#!/bin/sh\n[ \"$1\" = features ] || exit 2\n"+answer+"\n", 0o755)
	}
	knows := program("knows", `echo '{"ociVersionMin":"1.0.0","linux":{"netDevices":{"enabled":true},"intelRdt":{"enabled":true}}}'`)
	without := program("without", `echo '{"ociVersionMin":"1.0.0","linux":{"cgroup":{"v1":true}}}'`)
	old := program("old", "echo 'No help topic for features' >&2; exit 3")
	absent := filepath.Join(dir, "absent")
	containerd := write("containerd.toml", "version = 2\n"+
		"[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.knows.options]\n  BinaryName = \""+knows+"\"\n"+
		"[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.without.options]\n  BinaryName = \""+without+"\"\n", 0o644)
	crio := write("crio.conf", "[crio.runtime.runtimes.old]\nruntime_path = \""+old+"\"\n[crio.runtime.runtimes.absent]\nruntime_path = \""+absent+"\"\n", 0o644)

	examine := func(spec string) string {
		t.Helper()
		write("cdi/vendor.json", spec, 0o644)
		registry, err := cdi.NewCache(cdi.Options{SpecDirs: []string{filepath.Join(dir, "cdi")}, TrustAnyone: true, DisableWatch: true})
		if err != nil {
			t.Fatal(err)
		}
		defer registry.Close()
		n := newNode(Options{Host: hostfs.Host(), ContainerdFile: containerd, CRIOFile: crio})
		n.snapshot = registry.Snapshot()
		checkContainerd(t.Context(), n)
		checkCRIO(t.Context(), n)
		var lines strings.Builder
		for _, f := range append(checkNetDevices(t.Context(), n), checkIntelRdt(t.Context(), n)...) {
			fmt.Fprintf(&lines, "%s: %s\n", f.Severity, f.Found)
		}
		return lines.String()
	}
	text := examine(`{"cdiVersion":"1.1.0","kind":"vendor.com/net","devices":[{"name":"nd","containerEdits":{"netDevices":[{"hostInterfaceName":"eth7","name":"fast0"}]}}]}`)
	for _, want := range []string{
		"ok: OCI runtime " + knows + " knows netDevices\n",
		"warning: OCI runtime " + without + " does not know netDevices",
		"warning: OCI runtime " + old + " does not say that it knows netDevices",
		"unknown: OCI runtime " + absent + " is not here",
		`containers get CDI device "vendor.com/net=nd" without its network devices`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	text = examine(`{"cdiVersion":"0.7.0","kind":"vendor.com/net","devices":[{"name":"rdt","containerEdits":{"intelRdt":{"closID":"gold"}}}]}`)
	for _, want := range []string{
		"ok: OCI runtime " + knows + " knows intelRdt\n",
		"warning: OCI runtime " + without + " does not know intelRdt",
		"warning: OCI runtime " + old + " does not say that it knows intelRdt",
		`containers get CDI device "vendor.com/net=rdt" without its class of service`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if text := examine(`{"cdiVersion":"1.1.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`); text != "" {
		t.Errorf("the runtimes are asked without need:\n%s", text)
	}
}
