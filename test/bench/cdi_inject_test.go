// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/jackfield/jackfield/pkg/apply/oci"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// podSpec is a container of a pod as containerd has it, less what no injection looks at.
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

// fresh is a copy of a spec deep enough to be injected into.
func fresh(s *rspec.Spec) *rspec.Spec {
	c, p, l, r := *s, *s.Process, *s.Linux, *s.Linux.Resources
	p.Env, c.Mounts, r.Devices = slices.Clone(p.Env), slices.Clone(c.Mounts), slices.Clone(r.Devices)
	l.Resources, c.Process, c.Linux = &r, &p, &l
	return &c
}

// BenchmarkCDIInject puts one device into a spec, with N files there. "copy" is what
// each iteration spends on a spec to inject into, in the other figures, too.
func BenchmarkCDIInject(b *testing.B) {
	base := podSpec()
	b.Run("copy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fresh(base)
		}
	})
	for _, n := range cdiSizes {
		dir := cdiDirectory(b, n)
		device := cdiQualified(n-1, 0)
		// What nobody can do without: the copy, one look at the directory and one at
		// the queue of announcements, the look at each device node, and the spec's lists
		// as they are then, from edits that are known beforehand.
		b.Run(fmt.Sprintf("n=%d/floor", n), func(b *testing.B) {
			c, known := cdiFloor(b, dir), knownEdits(b, n-1)
			b.Cleanup(c.close)
			check(b, known.same(base))
			b.ReportAllocs()
			for b.Loop() {
				spec := fresh(base)
				if !c.has(device) {
					b.Fatal("a device is missing")
				}
				check(b, known.put(spec))
			}
		})
		b.Run(fmt.Sprintf("n=%d/jackfield", n), func(b *testing.B) {
			e, err := resolve.New(hostfs.Host(), config.Default(), resolve.Options{AllowAll: true, SpecDirs: []string{dir}})
			check(b, err)
			b.Cleanup(func() { check(b, e.Close()) })
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				spec := fresh(base)
				u := spec.Process.User
				plan, err := e.Resolve(ctx, &resolve.Request{CDIDevices: []string{device}, Have: oci.Existing(spec), User: &resolve.User{UID: u.UID, GID: u.GID}})
				if err != nil {
					b.Fatal(err)
				}
				if err := oci.Apply(spec, &plan.Set); err != nil {
					b.Fatal(err)
				}
				plan.Release()
			}
		})
		b.Run(fmt.Sprintf("n=%d/upstream", n), func(b *testing.B) {
			c, err := cdi.NewCache(cdi.WithSpecDirs(dir))
			check(b, err)
			b.Cleanup(func() { check(b, c.Configure(cdi.WithAutoRefresh(false), cdi.WithSpecDirs("/nonexistent"))) })
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.InjectDevices(fresh(base), device); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCDIApply is the applier alone, with the edits of one device, on a spec and
// on its text.
func BenchmarkCDIApply(b *testing.B) {
	base := podSpec()
	e, err := resolve.New(hostfs.Host(), config.Default(), resolve.Options{AllowAll: true, Once: true, SpecDirs: []string{cdiDirectory(b, 1)}})
	check(b, err)
	b.Cleanup(func() { check(b, e.Close()) })
	plan, err := e.Resolve(context.Background(), &resolve.Request{CDIDevices: []string{cdiQualified(0, 0)}})
	check(b, err)
	b.Run("spec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := oci.Apply(fresh(base), &plan.Set); err != nil {
				b.Fatal(err)
			}
		}
	})
	text, err := json.MarshalIndent(base, "", "\t")
	check(b, err)
	b.Run("text", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			c, err := oci.ParseConfig(text)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.Apply(&plan.Set); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCDIInjectProcess is the whole process, from fork to exit, in turn with the
// same made of upstream's library: with no spec files and nothing asked for, and one
// device of N files. "true" is a process that does nothing, "hello" a Go program
// that prints a line.
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
	check(b, err)
	check(b, os.WriteFile(file, text, 0o644))
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
		if n > 0 {
			device := cdiQualified(n-1, 0)
			mine, peer = append(mine, "--cdi-device", device), append(peer, device)
		}
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			var jackfield, upstream, helloWorld, nothing []time.Duration
			for b.Loop() {
				jackfield = append(jackfield, run(env, mine...))
				upstream = append(upstream, run(env, peer...))
				helloWorld = append(helloWorld, run(env, hello))
				nothing = append(nothing, run(env, "true"))
			}
			b.ReportMetric(0, "ns/op")
			for name, all := range map[string][]time.Duration{"jackfield": jackfield, "upstream": upstream, "hello": helloWorld, "true": nothing} {
				b.ReportMetric(quantile(all, 50)/1e6, name+"-ms")
			}
		})
	}
}
