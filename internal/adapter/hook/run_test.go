// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// testHost is a host with a configuration and one CDI device.
type testHost struct {
	t   *testing.T
	dir string
}

func newTestHost(t *testing.T) *testHost {
	w := &testHost{t: t, dir: t.TempDir()}
	if strings.HasPrefix(w.dir, "/dev/") { // a state directory must not be below /dev
		dir, err := os.MkdirTemp("/tmp", "jf")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		w.dir = dir
	}
	w.write("cdi/v.json", `{"cdiVersion":"0.6.0","kind":"v.com/c","devices":[{"name":"a","containerEdits":{"env":["V=a"],
		"deviceNodes":[{"path":"/dev/x","hostPath":"/dev/null"}]}}]}`)
	w.write("config.yaml", `cdi: {specDirs: [`+w.dir+`/cdi]}
deviceInfo: {cniDir: `+w.dir+`/devinfo}
kubelet: {podResourcesSocket: `+w.dir+`/kubelet.sock}
stateDir: `+w.dir+`/state
policy: {rules: [{name: r, for: {namespaces: ["", ns]}, allow: {cdi: ["v.com/c=a"]}}]}
`)
	return w
}

func (w *testHost) write(name, text string) {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testHost) read(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *testHost) run(stdin string, args ...string) (string, error) {
	var out bytes.Buffer
	err := Run(context.Background(), append([]string{"--config", w.dir + "/config.yaml", "--log", w.dir + "/log"}, args...),
		Env{Stdin: strings.NewReader(stdin), Stdout: &out, Self: func() (string, error) { return w.dir + "/bin/jackfield-hook", nil }})
	return out.String(), err
}

func TestPrecreateInjectsOnceOrRefuses(t *testing.T) {
	w := newTestHost(t)
	plain := `{"ociVersion":"1.0.2","unknown":{"kept":1},"process":{"env":["A=1"]},"root":{"path":"/r"},"annotations":{},"linux":{}}`
	if out, err := w.run(plain); err != nil || out != plain {
		t.Errorf("%v: %s", err, out)
	}
	requesting := strings.Replace(plain, `"annotations":{}`, `"annotations":{"devices.jackfield.dev":"v.com/c=a"}`, 1)
	out, err := w.run(requesting, "precreate")
	if err != nil || !strings.Contains(out, `"V=a"`) || !strings.Contains(out, "/dev/x") || !strings.Contains(out, `"unknown":{"kept":1}`) {
		t.Errorf("%v: %s", err, out)
	}
	// A second run changes nothing.
	if again, err := w.run(out, "precreate"); err != nil || again != out {
		t.Errorf("%v: %s", err, again)
	}
	// In a user namespace, a node with another path on the host is bind-mounted, and its cgroup rule is added.
	out, err = w.run(strings.Replace(requesting, `"linux":{}`, `"linux":{"namespaces":[{"type":"user"}]}`, 1), "precreate")
	var spec struct {
		Mounts []struct{ Destination, Source string }
		Linux  struct {
			Devices   []any
			Resources struct{ Devices []any }
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &spec) != nil || len(spec.Mounts) != 1 || spec.Mounts[0].Source != "/dev/null" ||
		len(spec.Linux.Devices) != 0 || len(spec.Linux.Resources.Devices) != 1 {
		t.Errorf("%v: %s", err, out)
	}
	// A node that the host lacks, or that differs on the host, is refused.
	for node, want := range map[string]string{
		`{"path":"/dev/x","type":"c","major":1,"minor":3}`:                                        `device node "/dev/x": a container with a user namespace can only get nodes that the host has`,
		`{"path":"/dev/x","hostPath":"/dev/null","type":"c","major":1,"minor":5}`:                 "is c 1:3 on the host, but the file says c 1:5",
		`{"path":"/dev/x","hostPath":"` + w.dir + `/config.yaml","type":"c","major":1,"minor":5}`: "is a regular file",
	} {
		w.write("cdi/w.json", `{"cdiVersion":"0.6.0","kind":"v.com/w","devices":[{"name":"a","containerEdits":{"deviceNodes":[`+node+`]}}]}`)
		w.write("config.yaml", strings.Replace(w.read("config.yaml"), `"v.com/c=a"]`, `"v.com/c=a", "v.com/w=a"]`, 1))
		inUserNS := strings.Replace(strings.Replace(requesting, "c=a", "w=a", 1), `"linux":{}`, `"linux":{"namespaces":[{"type":"user"}]}`, 1)
		if out, err := w.run(inUserNS, "precreate"); err == nil || out != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: %s, want %q", node, err, out, want)
		}
	}
	out, err = w.run(strings.Replace(requesting, "c=a", "c=b", 1))
	if err == nil || out != "" || !strings.Contains(err.Error(), `"v.com/c=b"`) {
		t.Errorf("%v: %s", err, out)
	}
	log, err := os.ReadFile(w.dir + "/log")
	if err != nil || !strings.Contains(string(log), "level=error stage=precreate container=root-") || !strings.Contains(string(log), "level=info") {
		t.Errorf("%v: %s", err, log)
	}
}

func TestHelpVersionAndInvalidFlags(t *testing.T) {
	w := newTestHost(t)
	for _, args := range [][]string{{"startContainer"}, {"precreate", "x"}, {"--stage", "prestart", "prestart"}, {"--what"}, {"--log"}, {"--version=x"}, {"---log", "x"},
		{"-=x"}, {"precreate", "--version"}, {"--", "--version"}} {
		if out, err := w.run("{}", args...); err == nil || out != "" {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	for _, args := range [][]string{{"--help"}, {"--version"}, {"-h"}, {"-version", "--stage=prestart"}, {"--log", "--version", "-log=", "--version"}} {
		if out, err := w.run("", args...); err != nil || !strings.Contains(out, "jackfield-hook") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

func TestVersionIsOneLine(t *testing.T) {
	out, err := newTestHost(t).run("", "--version")
	if err != nil || !regexp.MustCompile(`^jackfield-hook \S+( \([0-9a-f]+(\+changes)?\))? go1\S+\n$`).MatchString(out) {
		t.Errorf("%v, %q", err, out)
	}
}

func TestFlagsAreReadInEveryForm(t *testing.T) {
	for _, args := range [][]string{
		{"--config", "/c", "--log=l", "-container-id", "--x", "-stage=prestart"}, {"--config=/c", "-log", "l", "--container-id=--x", "prestart"},
		{"--config=/x", "--config=/c", "--log", "l", "--container-id", "--x", "--", "prestart"},
	} {
		var h hook
		if done, err := h.parseFlags(args); done || err != nil {
			t.Errorf("%q: %v, %v", args, done, err)
		}
		if h.configFile != "/c" || h.logTo != "l" || h.containerID != "--x" || h.stage != Prestart {
			t.Errorf("%q: %+v", args, h)
		}
	}
}

// If the NRI plugin has mounted the container's staging directory, the hook injects nothing.
func TestHookInjectsNothingAfterNRIPlugin(t *testing.T) {
	w := newTestHost(t)
	state := `{"ociVersion":"1.0.2","id":"c","status":"creating","bundle":"` + w.dir + `","pid":1,"annotations":{"devices.jackfield.dev":"v.com/c=none"}}`
	for source, want := range map[string]string{w.dir + "/state/containers/c": "", w.dir + "/other": `"v.com/c=none"`} {
		w.write("config.json", `{"ociVersion":"1.0.2","root":{"path":"/r"},"mounts":[{"destination":"/var/run/jackfield","source":"`+source+`"}]}`)
		_, err := w.run(state, "createRuntime")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with a mount of %s: %v", source, err)
		}
	}
	if log := w.read("log"); !strings.Contains(log, "the NRI plugin of this node has delivered") {
		t.Error(log)
	}
}

// createRuntime fails without a process and without config.json. It injects nothing into the container of the
// sandbox itself. poststop always succeeds.
func TestCreateRuntimeAndPoststop(t *testing.T) {
	w := newTestHost(t)
	state := func(annotations string, pid string) string {
		return `{"ociVersion":"1.0.2","id":"c","status":"creating","bundle":"` + w.dir + `","pid":` + pid + `,"annotations":{` + annotations + `}}`
	}
	if _, err := w.run(state(`"devices.jackfield.dev":"v.com/c=a"`, "0"), "createRuntime"); err == nil || !strings.Contains(err.Error(), "pid: invalid value 0") {
		t.Error(err)
	}
	if _, err := w.run(state(`"devices.jackfield.dev":"v.com/c=a"`, "1"), "createRuntime"); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Error(err)
	}
	if _, err := w.run(state(`"`+crioSandboxID+`":"s","`+crioType+`":"sandbox","`+labelNamespace+`":"ns"`, "1"), "createRuntime"); err != nil {
		t.Error(err)
	}
	if _, err := w.run(state("", "0"), "poststop"); err != nil {
		t.Error(err)
	}
	// poststop succeeds for containers for which nothing was created, also with IDs that only runc
	// allows, and if other containers have state.
	if err := os.MkdirAll(w.dir+"/state/hook/containers", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c", "a+b"} {
		if _, err := w.run(strings.Replace(state("", "0"), `"id":"c"`, `"id":"`+id+`"`, 1), "poststop"); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	// For a pod's container on a node with a kubelet, the hook needs the program jackfield.
	w.write("kubelet.sock", "")
	if _, err := w.run(state(`"`+ctrdSandboxID+`":"s","`+ctrdNamespace+`":"ns","devices.jackfield.dev":"v.com/c=a"`, "1"), "createRuntime"); err == nil ||
		!strings.Contains(err.Error(), w.dir+"/bin/jackfield") {
		t.Error(err)
	}
}

// With hook.askedBy, requests need the annotation with the configured value. Images do not know the value.
func TestAskedByRefusesRequestsOfImages(t *testing.T) {
	w := newTestHost(t)
	w.write("config.yaml", w.read("config.yaml")+"hook: {askedBy: example.com/devices=our-word}\n")
	spec := func(annotations string) string {
		return `{"ociVersion":"1.0.2","process":{"env":["A=1"]},"root":{"path":"/r"},"annotations":{` + annotations + `},"linux":{}}`
	}
	const requests, pod = `"devices.jackfield.dev":"v.com/c=a"`, `,"io.kubernetes.cri.sandbox-id":"s","io.kubernetes.cri.sandbox-namespace":"ns"`
	for name, tc := range map[string]struct {
		annotations        string
		refused, delivered bool
	}{
		"image":       {requests, true, false},
		"wrong value": {requests + `,"example.com/devices":"yes"`, true, false},
		"user":        {requests + `,"example.com/devices":"our-word"`, false, true},
		"no request":  {`"example.com/devices":"yes"`, false, false},
		"pod":         {requests + pod, false, true},
	} {
		out, err := w.run(spec(tc.annotations), "precreate")
		if (err != nil) != tc.refused || strings.Contains(out, `"V=a"`) != tc.delivered {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if err != nil && (!strings.Contains(err.Error(), "hook.askedBy") || strings.Contains(err.Error(), "our-word")) {
			t.Errorf("%s: the error does not name the key, or has its value: %v", name, err)
		}
	}
	state := `{"ociVersion":"1.0.2","id":"x","status":"creating","pid":1,"bundle":"/nowhere","annotations":{` + requests + `}}`
	if _, err := w.run(state, "createRuntime"); err == nil || !strings.Contains(err.Error(), "hook.askedBy") {
		t.Errorf("createRuntime: %v", err)
	}
}

// The hook runs as root. A configuration of another user would grant this user's containers everything.
func TestConfigurationOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	w := newTestHost(t)
	const spec = `{"ociVersion":"1.0.2","process":{},"root":{"path":"/r"},"linux":{},
		"annotations":{"devices.jackfield.dev":"v.com/c=a"}}`
	if out, err := w.run(spec, "precreate"); err != nil || !strings.Contains(out, `"V=a"`) {
		t.Fatalf("with a configuration of root: %v: %s", err, out)
	}
	if err := os.Chown(filepath.Join(w.dir, "config.yaml"), 12345, -1); err != nil {
		t.Fatal(err)
	}
	state := `{"ociVersion":"1.0.2","id":"c","status":"creating","pid":1,"bundle":"` + w.dir + `"}`
	stopped := strings.Replace(state, "creating", "stopped", 1)
	for stage, stdin := range map[string]string{"precreate": spec, "createRuntime": state, "poststop": stopped} {
		out, err := w.run(stdin, stage)
		if out != "" || !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "uid 12345") {
			t.Errorf("%s: %v: %s", stage, err, out)
		}
	}
}
