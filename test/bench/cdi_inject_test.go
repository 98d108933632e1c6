// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// podSpec returns the spec of a pod's container as containerd creates it, with the fields that an injection
// reads or changes.
func podSpec() *rspec.Spec {
	s := &rspec.Spec{Version: "1.2.0", Process: &rspec.Process{Cwd: "/", Args: []string{"sleep"}},
		Linux: &rspec.Linux{Resources: &rspec.LinuxResources{}, Namespaces: []rspec.LinuxNamespace{{Type: rspec.MountNamespace}, {Type: rspec.PIDNamespace}}}}
	for i := range 20 {
		s.Process.Env = append(s.Process.Env, fmt.Sprintf("SERVICE_%d_PORT=tcp://10.96.0.%d:443", i, i))
	}
	for _, d := range []string{"/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/shm", "/dev/termination-log", "/var/run/secrets/kubernetes.io/serviceaccount"} {
		s.Mounts = append(s.Mounts, rspec.Mount{Destination: d, Type: "bind", Source: "/src" + d, Options: []string{"rbind", "rprivate", "rw"}})
	}
	s.Linux.Resources.Devices = []rspec.LinuxDeviceCgroup{{Access: "rwm"}}
	return s
}

// BenchmarkCDIInjectProcess measures "jackfield inject" from fork to exit, in turn with a program
// that does the same with upstream's library: with no spec files and an optional device
// that does not exist, and with one device of N files. "hello" is a Go program that prints a line.
func BenchmarkCDIInjectProcess(b *testing.B) {
	bin := b.TempDir()
	build := func(name, dir, pkg string) string {
		out := filepath.Join(bin, name)
		cmd := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", out, pkg)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		if msg, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, msg)
		}
		return out
	}
	ours := build("jackfield", "../..", "./cmd/jackfield")
	theirs := build("upstream-inject", ".", "./testdata/upstream-inject")
	hello := build("hello", ".", "./testdata/hello")
	file := filepath.Join(bin, "config.json")
	text, err := json.Marshal(podSpec())
	testkit.Must(b, err)
	testkit.Must(b, os.WriteFile(file, text, 0o644))
	run := func(env []string, args ...string) time.Duration {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = env
		start := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatalf("%v: %v", args, err)
		}
		return time.Since(start)
	}
	for _, n := range append([]int{0}, cdiSizes...) {
		dir := cdiDirectory(b, n)
		env := []string{"CDI_SPEC_DIRS=" + dir}
		mine, peer := []string{ours, "inject", "--spec", file}, []string{theirs, dir, file}
		if n == 0 {
			// A call that requests nothing is a usage error.
			mine = append(mine, "--annotation", `devices.jackfield.dev=[{device: "example.com/none=0", optional: true}]`)
		} else {
			device := cdiQualified(n-1, 0)
			mine, peer = append(mine, "--cdi-device", device), append(peer, device)
		}
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			var jackfield, upstream, helloWorld []time.Duration
			for b.Loop() {
				jackfield = append(jackfield, run(env, mine...))
				upstream = append(upstream, run(env, peer...))
				helloWorld = append(helloWorld, run(env, hello))
			}
			b.ReportMetric(0, "ns/op")
			for name, all := range map[string][]time.Duration{"jackfield": jackfield, "upstream": upstream, "hello": helloWorld} {
				b.ReportMetric(quantile(all, 50)/1e6, name+"-ms")
			}
		})
	}
}
