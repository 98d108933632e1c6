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
)

// world is a host with a configuration and one CDI device.
type world struct {
	t   *testing.T
	dir string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir()}
	if strings.HasPrefix(w.dir, "/dev/") { // where no state is kept
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

func (w *world) write(name, text string) {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *world) run(stdin string, args ...string) (string, error) {
	var out bytes.Buffer
	err := Run(context.Background(), append([]string{"--config", w.dir + "/config.yaml", "--log", w.dir + "/log"}, args...),
		Env{Stdin: strings.NewReader(stdin), Stdout: &out, Self: func() (string, error) { return w.dir + "/bin/jackfield-hook", nil }})
	return out.String(), err
}

func TestPrecreate(t *testing.T) {
	w := newWorld(t)
	plain := `{"ociVersion":"1.0.2","unknown":{"kept":1},"process":{"env":["A=1"]},"root":{"path":"/r"},"annotations":{},"linux":{}}`
	if out, err := w.run(plain); err != nil || out != plain {
		t.Errorf("%v: %s", err, out)
	}
	asks := strings.Replace(plain, `"annotations":{}`, `"annotations":{"devices.jackfield.dev":"v.com/c=a"}`, 1)
	out, err := w.run(asks, "precreate")
	if err != nil || !strings.Contains(out, `"V=a"`) || !strings.Contains(out, "/dev/x") || !strings.Contains(out, `"unknown":{"kept":1}`) {
		t.Errorf("%v: %s", err, out)
	}
	// Once more changes nothing.
	if again, err := w.run(out, "precreate"); err != nil || again != out {
		t.Errorf("%v: %s", err, again)
	}
	// In a user namespace a node of another path is bound, with its rule.
	out, err = w.run(strings.Replace(asks, `"linux":{}`, `"linux":{"namespaces":[{"type":"user"}]}`, 1), "precreate")
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
	// One that the host has not, or has as another, is refused: the runtime would bind
	// whatever is there.
	for node, want := range map[string]string{
		`{"path":"/dev/x","type":"c","major":1,"minor":3}`:                                        `device node "/dev/x": in a user namespace only a node of the host can be had`,
		`{"path":"/dev/x","hostPath":"/dev/null","type":"c","major":1,"minor":5}`:                 "number 1:3, not one of type c with 1:5",
		`{"path":"/dev/x","hostPath":"` + w.dir + `/config.yaml","type":"c","major":1,"minor":5}`: "is a regular file",
	} {
		w.write("cdi/w.json", `{"cdiVersion":"0.6.0","kind":"v.com/w","devices":[{"name":"a","containerEdits":{"deviceNodes":[`+node+`]}}]}`)
		w.write("config.yaml", strings.Replace(w.read("config.yaml"), `"v.com/c=a"]`, `"v.com/c=a", "v.com/w=a"]`, 1))
		user := strings.Replace(strings.Replace(asks, "c=a", "w=a", 1), `"linux":{}`, `"linux":{"namespaces":[{"type":"user"}]}`, 1)
		if out, err := w.run(user, "precreate"); err == nil || out != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: %s, want %q", node, err, out, want)
		}
	}
	out, err = w.run(strings.Replace(asks, "c=a", "c=b", 1))
	if err == nil || out != "" || !strings.Contains(err.Error(), `"v.com/c=b"`) {
		t.Errorf("%v: %s", err, out)
	}
	log, err := os.ReadFile(w.dir + "/log")
	if err != nil || !strings.Contains(string(log), "level=error stage=precreate container=root-") || !strings.Contains(string(log), "level=info") {
		t.Errorf("%v: %s", err, log)
	}
}

func TestArguments(t *testing.T) {
	w := newWorld(t)
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
	out, err := newWorld(t).run("", "--version")
	if err != nil || !regexp.MustCompile(`^jackfield-hook \S+( \([0-9a-f]+(\+changes)?\))? go1\S+\n$`).MatchString(out) {
		t.Errorf("%v, %q", err, out)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--config", "/c", "--log=l", "-container-id", "--x", "-stage=prestart"}, {"--config=/c", "-log", "l", "--container-id=--x", "prestart"},
		{"--config=/x", "--config=/c", "--log", "l", "--container-id", "--x", "--", "prestart"},
	} {
		var h hook
		if done, err := h.arguments(args); done || err != nil {
			t.Errorf("%q: %v, %v", args, done, err)
		}
		if h.configFile != "/c" || h.logTo != "l" || h.containerID != "--x" || h.stage != Prestart {
			t.Errorf("%q: %+v", args, h)
		}
	}
}

// A state without a process, a bundle without a configuration, and the sandbox's
// own container.
func TestRunning(t *testing.T) {
	w := newWorld(t)
	state := func(annotations string, pid string) string {
		return `{"ociVersion":"1.0.2","id":"c","status":"creating","bundle":"` + w.dir + `","pid":` + pid + `,"annotations":{` + annotations + `}}`
	}
	if _, err := w.run(state(`"devices.jackfield.dev":"v.com/c=a"`, "0"), "createRuntime"); err == nil || !strings.Contains(err.Error(), "pid 0") {
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
	// Of a container for which nothing was made, whatever runc lets it be called, also
	// beside others' things.
	if err := os.MkdirAll(w.dir+"/state/hook/containers", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c", "a+b"} {
		if _, err := w.run(strings.Replace(state("", "0"), `"id":"c"`, `"id":"`+id+`"`, 1), "poststop"); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	// A pod's container where there is a kubelet: nobody guesses what it would say.
	w.write("kubelet.sock", "")
	if _, err := w.run(state(`"`+ctrdSandboxID+`":"s","`+ctrdNamespace+`":"ns","devices.jackfield.dev":"v.com/c=a"`, "1"), "createRuntime"); err == nil ||
		!strings.Contains(err.Error(), w.dir+"/bin/jackfield") {
		t.Error(err)
	}
}

// An image asks as its user does. Where hook.askedBy is set, only who knows its value asks.
func TestAskedBy(t *testing.T) {
	w := newWorld(t)
	w.write("config.yaml", w.read("config.yaml")+"hook: {askedBy: example.com/devices=our-word}\n")
	spec := func(annotations string) string {
		return `{"ociVersion":"1.0.2","process":{"env":["A=1"]},"root":{"path":"/r"},"annotations":{` + annotations + `},"linux":{}}`
	}
	const asks, pod = `"devices.jackfield.dev":"v.com/c=a"`, `,"io.kubernetes.cri.sandbox-id":"s","io.kubernetes.cri.sandbox-namespace":"ns"`
	for name, tc := range map[string]struct {
		annotations        string
		refused, delivered bool
	}{
		"the image alone": {asks, true, false},
		"a guess":         {asks + `,"example.com/devices":"yes"`, true, false},
		"the user":        {asks + `,"example.com/devices":"our-word"`, false, true},
		"nothing asked":   {`"example.com/devices":"yes"`, false, false},
		"a pod":           {asks + pod, false, true},
	} {
		out, err := w.run(spec(tc.annotations), "precreate")
		if (err != nil) != tc.refused || strings.Contains(out, `"V=a"`) != tc.delivered {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if err != nil && (!strings.Contains(err.Error(), "hook.askedBy") || strings.Contains(err.Error(), "our-word")) {
			t.Errorf("%s: the error does not name the key, or has its value: %v", name, err)
		}
	}
	state := `{"ociVersion":"1.0.2","id":"x","status":"creating","pid":1,"bundle":"/nowhere","annotations":{` + asks + `}}`
	if _, err := w.run(state, "createRuntime"); err == nil || !strings.Contains(err.Error(), "hook.askedBy") {
		t.Errorf("createRuntime: %v", err)
	}
}
