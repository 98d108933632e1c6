// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// BenchmarkHookProcess is jackfield-hook at precreate, the whole process from fork
// to exit, with CDI files there, in turn with a Go program that prints a line:
// for a container that asks for nothing, should a runtime run the hook for it at
// all, and for one that asks for one device.
func BenchmarkHookProcess(b *testing.B) {
	hook, hello := build(b, "../cmd/jackfield-hook"), build(b, "./bench/testdata/hello")
	config := filepath.Join(b.TempDir(), "config.yaml")
	configure := func(dir string) {
		check(b, os.WriteFile(config, []byte(strings.NewReplacer("SPECS", dir, "STATE", filepath.Join(filepath.Dir(config), "state"), "KIND", cdiKind).Replace(`
cdi: {specDirs: [SPECS]}
stateDir: STATE
policy:
  rules:
    - name: r
      for: {namespaces: [""]}
      allow: {cdi: ["KIND=*"]}
`)), 0o600))
	}
	spec := func(annotations map[string]string) []byte {
		s := podSpec()
		s.Root, s.Annotations = &rspec.Root{Path: "/rootfs"}, annotations
		text, err := json.Marshal(s)
		check(b, err)
		return text
	}
	b.Run("version", func(b *testing.B) {
		var ours, peer []time.Duration
		for b.Loop() {
			ours = append(ours, process(b, nil, "version", hook, "--version"))
			peer = append(peer, process(b, nil, "hello", hello))
		}
		reportPair(b, ours, peer, "jackfield-ms", "hello-ms", time.Millisecond)
	})
	for _, tt := range []struct {
		name        string
		files       int
		annotations map[string]string
		want        string
	}{
		{"nothing-asked", 1000, nil, "sleep"},
		{"one-device/n=1", 1, map[string]string{"devices.jackfield.dev": cdiQualified(0, 0)}, "/dev/vendor0"},
		{"one-device/n=10", 10, map[string]string{"devices.jackfield.dev": cdiQualified(9, 0)}, "/dev/vendor0"},
		{"one-device/n=1000", 1000, map[string]string{"devices.jackfield.dev": cdiQualified(999, 0)}, "/dev/vendor0"},
	} {
		configure(cdiDirectory(b, tt.files))
		stdin := spec(tt.annotations)
		b.Run(tt.name, func(b *testing.B) {
			var ours, peer []time.Duration
			for b.Loop() {
				ours = append(ours, process(b, stdin, tt.want, hook, "--config", config, "precreate"))
				peer = append(peer, process(b, stdin, "hello", hello))
			}
			reportPair(b, ours, peer, "jackfield-ms", "hello-ms", time.Millisecond)
		})
	}
}

// process is how long a process takes from fork to exit that is given stdin and prints
// what is wanted. The peer is given the same stdin: the pipe and who writes into it are
// the measurement's, as a runtime has them for every hook.
func process(b *testing.B, stdin []byte, want string, args ...string) time.Duration {
	b.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{}
	cmd.Stdin = bytes.NewReader(stdin)
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil || !strings.Contains(out.String(), want) {
		b.Fatalf("%v: %v: %s", args, err, msg.String())
	}
	return took
}

// BenchmarkHookCreateRuntime is the same at createRuntime, for a process with a mount
// namespace of its own that stands for a container: nothing asked for, and a CDI
// device of so many files that is a mount, which the hook makes in there and which is
// taken away before the next. "enters" is a program in the hook's place that does
// nothing there.
func BenchmarkHookCreateRuntime(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("skipped: entering a mount namespace needs root")
	}
	hook, hello, enter := build(b, "../cmd/jackfield-hook"), build(b, "./bench/testdata/hello"), build(b, "./bench/testdata/enter")
	dir := b.TempDir()
	write := func(name, text string) {
		check(b, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		check(b, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("rootfs/opt/data/file", "")
	for i := range 10 {
		text := fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":"vendor.example.com/data","devices":[{"name":"d%d",
			"containerEdits":{"mounts":[{"hostPath":%q,"containerPath":"/opt/data","options":["ro","bind"]}]}}]}`, i, dir)
		write(fmt.Sprintf("cdi-10/v%d.json", i), text)
		if i == 0 {
			write("cdi-1/v0.json", text)
		}
	}
	for _, files := range []string{"1", "10"} {
		write("config-"+files+".yaml", `
cdi: {specDirs: [`+dir+`/cdi-`+files+`]}
stateDir: `+dir+`/state
policy: {rules: [{name: r, for: {namespaces: [""]}, allow: {cdi: ["vendor.example.com/data=*"]}}]}
`)
	}
	s := podSpec()
	s.Root = &rspec.Root{Path: filepath.Join(dir, "rootfs")}
	text, err := json.Marshal(s)
	check(b, err)
	write("bundle/config.json", string(text))
	container := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 600")
	container.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := container.StdoutPipe()
	check(b, err)
	check(b, container.Start())
	b.Cleanup(func() {
		_ = container.Process.Kill()
		_ = container.Wait()
	})
	_, err = out.Read(make([]byte, 8))
	check(b, err)
	state := func(annotations map[string]string) []byte {
		text, err := json.Marshal(rspec.State{Version: "1.2.0", ID: "c", Status: rspec.StateCreating, Pid: container.Process.Pid,
			Bundle: filepath.Join(dir, "bundle"), Annotations: annotations})
		check(b, err)
		return text
	}
	mounts := func() int {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", container.Process.Pid))
		check(b, err)
		return strings.Count(string(table), "/rootfs/opt/data ")
	}
	unmount := func() {
		if mounts() == 0 {
			return
		}
		out, err := exec.Command("nsenter", "-t", strconv.Itoa(container.Process.Pid), "-m", "umount", filepath.Join(dir, "rootfs/opt/data")).CombinedOutput()
		if err != nil {
			b.Fatalf("unmount: %v: %s", err, out)
		}
	}
	b.Run("enters", func(b *testing.B) {
		var ours, peer []time.Duration
		for b.Loop() {
			ours = append(ours, process(b, nil, "hello", enter, strconv.Itoa(container.Process.Pid)))
			peer = append(peer, process(b, nil, "hello", hello))
		}
		reportPair(b, ours, peer, "jackfield-ms", "hello-ms", time.Millisecond)
	})
	for _, tt := range []struct {
		name, files string
		annotations map[string]string
	}{
		{"nothing-asked", "10", nil},
		{"one-mount/n=1", "1", map[string]string{"devices.jackfield.dev": "vendor.example.com/data=d0"}},
		{"one-mount/n=10", "10", map[string]string{"devices.jackfield.dev": "vendor.example.com/data=d9"}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			var ours, peer []time.Duration
			for b.Loop() {
				stdin := state(tt.annotations)
				unmount()
				ours = append(ours, process(b, stdin, "", hook, "--config", filepath.Join(dir, "config-"+tt.files+".yaml"), "createRuntime"))
				if n := mounts(); n != min(len(tt.annotations), 1) {
					b.Fatalf("the container has the mount %d times", n)
				}
				peer = append(peer, process(b, stdin, "hello", hello))
			}
			reportPair(b, ours, peer, "jackfield-ms", "hello-ms", time.Millisecond)
		})
	}
}
