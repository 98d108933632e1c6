// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The program is static: it needs no loader and no library, so neither an environment nor an image can
// replace one.
func TestHookNeedsNoLoader(t *testing.T) {
	f, err := elf.Open(newHost(t).hookCommand())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program has a segment %v", p.Type)
		}
	}
	if libs, err := f.ImportedLibraries(); len(libs) > 0 {
		t.Errorf("the program needs libraries %v, %v", libs, err)
	}
}

// runHookDirectly runs the hook at createRuntime with an environment, for a process in place of a container.
func (h *host) runHookDirectly(env []string, annotations map[string]string) (string, error) {
	h.t.Helper()
	spec, err := json.Marshal(h.spec(container{annotations: annotations}))
	if err != nil {
		h.t.Fatal(err)
	}
	h.write("bundle/config.json", string(spec))
	first := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 60")
	out, err := first.StdoutPipe()
	if err == nil {
		err = first.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() {
		_ = first.Process.Kill()
		_ = first.Wait()
	}()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		h.t.Fatal(err)
	}
	state, err := json.Marshal(rspec.State{Version: "1.0.2", ID: "direct", Status: rspec.StateCreating, Pid: first.Process.Pid, Bundle: h.path("bundle"), Annotations: annotations})
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(h.hookCommand(), h.hookArgs("createRuntime")[1:]...)
	cmd.Env, cmd.Stdin = env, strings.NewReader(string(state))
	printed, err := cmd.CombinedOutput()
	return string(printed), err
}

// The hook ignores the environment, which may come from the author of an image.
func TestHookIgnoresEnvironment(t *testing.T) {
	h := newHost(t)
	h.write("evil/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.example.com/dev","devices":[{"name":"zero","containerEdits":{"env":["EVIL=1"]}}]}`)
	evil := []string{"CDI_SPEC_DIRS=" + h.path("evil"), "LD_PRELOAD=" + h.path("evil/none.so"), "PATH=" + h.path("evil"), "HOME=" + h.path("evil"),
		"XDG_CONFIG_HOME=" + h.path("evil"), "XDG_RUNTIME_DIR=" + h.path("evil"), "TMPDIR=" + h.path("evil"), "JACKFIELD_CONFIG=" + h.path("evil/config.yaml")}
	// The device of the directory in the environment has a variable, which this stage cannot deliver.
	if out, err := h.runHookDirectly(evil, deviceAnnotation("zero")); err != nil || strings.Contains(out, "EVIL") {
		t.Errorf("%v: %s", err, out)
	}
	if got := h.log(); !strings.Contains(got, h.path("cdi/vendor.json")) || strings.Contains(got, "evil") {
		t.Errorf("the hook's log: %s", got)
	}
}

// The hook opens no file of the image: the kernel reports no open while the hook runs.
func TestImageIsNotRead(t *testing.T) {
	h := newHost(t)
	root := h.rootfs()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, dir := range []string{"", "bin", "etc", "tmp", "run", "var", "dev"} {
		if _, err := unix.InotifyAddWatch(fd, filepath.Join(root, dir), unix.IN_OPEN|unix.IN_ACCESS); err != nil {
			t.Fatal(err)
		}
	}
	drain := func() (names []string) {
		buf := make([]byte, 1<<16)
		n, err := unix.Read(fd, buf)
		if err != nil {
			return nil
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			if mask := binary.NativeEndian.Uint32(b[4:]); mask&unix.IN_ISDIR == 0 {
				names = append(names, strings.TrimRight(string(b[unix.SizeofInotifyEvent:size]), "\x00"))
			}
			b = b[size:]
		}
		return names
	}
	h.write("rootfs/etc/probe", "")
	if h.read("rootfs/etc/probe"); len(drain()) == 0 {
		t.Fatal("the kernel reports no open")
	}
	// The first run writes the bundle, and rootfs copies programs, which opens files. The second run does
	// not.
	h.runHookDirectly(nil, nil)
	drain()
	h.quiet = true
	if out, err := h.runHookDirectly(nil, deviceAnnotation("zero")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if names := drain(); len(names) > 0 {
		t.Errorf("opened: %v", names)
	}
}
