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

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// BenchmarkHookPrecreate measures jackfield-hook at precreate, from fork to exit, for a container
// that requests one CDI device. It takes turns with a Go program that prints a line.
func BenchmarkHookPrecreate(b *testing.B) {
	hook, hello := build(b, "../cmd/jackfield-hook"), build(b, "./bench/testdata/hello")
	dir := b.TempDir()
	config := filepath.Join(dir, "config.yaml")
	testkit.Must(b, os.WriteFile(config, fmt.Appendf(nil, `
cdi: {specDirs: [%s]}
stateDir: %s/state
policy: {rules: [{name: r, for: {namespaces: [""]}, allow: {cdi: ["%s=*"]}}]}
`, cdiDirectory(b, 1), dir, cdiKind), 0o600))
	s := podSpec()
	s.Root, s.Annotations = &rspec.Root{Path: "/rootfs"}, map[string]string{"devices.jackfield.dev": cdiQualified(0, 0)}
	stdin, err := json.Marshal(s)
	testkit.Must(b, err)
	var ours, peer []time.Duration
	for b.Loop() {
		ours = append(ours, runProcess(b, stdin, "/dev/vendor0", hook, "--config", config, "precreate"))
		peer = append(peer, runProcess(b, stdin, "hello", hello))
	}
	reportPair(b, ours, peer, "jackfield-ms", "hello-ms", time.Millisecond)
}

// runProcess returns the time that a process takes from fork to exit. The process reads stdin and must
// print the wanted text.
func runProcess(b *testing.B, stdin []byte, want string, args ...string) time.Duration {
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

// BenchmarkHookCreateRuntime measures jackfield-hook at createRuntime, from fork to exit, for a
// container that requests one CDI device with a mount. The container is a process with its own mount
// namespace.
func BenchmarkHookCreateRuntime(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("skipped: entering a mount namespace needs root")
	}
	hook, hello := build(b, "../cmd/jackfield-hook"), build(b, "./bench/testdata/hello")
	dir := b.TempDir()
	write := func(name, text string) {
		testkit.Must(b, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		testkit.Must(b, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("rootfs/opt/data/file", "")
	write("cdi/data.json", fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":"vendor.example.com/data","devices":[{"name":"d0",
		"containerEdits":{"mounts":[{"hostPath":%q,"containerPath":"/opt/data","options":["ro","bind"]}]}}]}`, dir))
	write("config.yaml", `
cdi: {specDirs: [`+dir+`/cdi]}
stateDir: `+dir+`/state
policy: {rules: [{name: r, for: {namespaces: [""]}, allow: {cdi: ["vendor.example.com/data=*"]}}]}
`)
	s := podSpec()
	s.Root = &rspec.Root{Path: filepath.Join(dir, "rootfs")}
	text, err := json.Marshal(s)
	testkit.Must(b, err)
	write("bundle/config.json", string(text))
	container := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 600")
	container.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := container.StdoutPipe()
	testkit.Must(b, err)
	testkit.Must(b, container.Start())
	b.Cleanup(func() {
		_ = container.Process.Kill()
		_ = container.Wait()
	})
	_, err = out.Read(make([]byte, 8))
	testkit.Must(b, err)
	stdin, err := json.Marshal(rspec.State{Version: "1.2.0", ID: "c", Status: rspec.StateCreating, Pid: container.Process.Pid,
		Bundle: filepath.Join(dir, "bundle"), Annotations: map[string]string{"devices.jackfield.dev": "vendor.example.com/data=d0"}})
	testkit.Must(b, err)
	mounts := func() int {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", container.Process.Pid))
		testkit.Must(b, err)
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
	var ours, peer []time.Duration
	for b.Loop() {
		unmount()
		ours = append(ours, runProcess(b, stdin, "", hook, "--config", filepath.Join(dir, "config.yaml"), "createRuntime"))
		if n := mounts(); n != 1 {
			b.Fatalf("the container has the mount %d times", n)
		}
		peer = append(peer, runProcess(b, stdin, "hello", hello))
	}
	reportPair(b, ours, peer, "jackfield-ms", "hello-ms", time.Millisecond)
}
