// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// injector runs inject with spec files in a temporary directory.
type injector struct {
	t      *testing.T
	dir    string
	stdin  string
	stdout bytes.Buffer
	stderr bytes.Buffer
}

func newInjector(t *testing.T) *injector {
	t.Helper()
	in := &injector{t: t, dir: t.TempDir()}
	in.write("cdi/v.json", `{"cdiVersion":"0.6.0","kind":"v.com/c","devices":[
		{"name":"a","containerEdits":{"env":["V=a"]}},{"name":"b","containerEdits":{"env":["V=b"]}}]}`, 0o644)
	return in
}

func (in *injector) path(name string) string { return filepath.Join(in.dir, name) }

func (in *injector) write(name, text string, mode os.FileMode) {
	in.t.Helper()
	if err := os.MkdirAll(filepath.Dir(in.path(name)), 0o755); err != nil {
		in.t.Fatal(err)
	}
	if err := os.WriteFile(in.path(name), []byte(text), mode); err != nil {
		in.t.Fatal(err)
	}
	if err := os.Chmod(in.path(name), mode); err != nil {
		in.t.Fatal(err)
	}
}

func (in *injector) run(args ...string) int {
	in.stdout.Reset()
	in.stderr.Reset()
	return Run(context.Background(), append([]string{"inject"}, args...), Env{
		Stdin: strings.NewReader(in.stdin), Stdout: &in.stdout, Stderr: &in.stderr,
		Getenv: func(name string) string {
			if name == "CDI_SPEC_DIRS" {
				return in.path("cdi")
			}
			return ""
		},
	})
}

const smallSpec = `{"ociVersion":"1.2.0","process":{"env":["V=0"]}}`

func TestInjectKeepsOwnerAndMode(t *testing.T) {
	in := newInjector(t)
	in.write("b/config.json", smallSpec, 0o604)
	owner := os.Geteuid() == 0
	if owner {
		if err := os.Chown(in.path("b/config.json"), 12345, 54321); err != nil {
			t.Fatal(err)
		}
	}
	if code := in.run("--bundle", in.path("b"), "--cdi-device", "v.com/c=a"); code != ExitOK {
		t.Fatal(code, in.stderr.String())
	}
	st, err := os.Stat(in.path("b/config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if sys := st.Sys().(*syscall.Stat_t); st.Mode().Perm() != 0o604 || owner && (sys.Uid != 12345 || sys.Gid != 54321) {
		t.Errorf("mode %o, owner %d:%d", st.Mode().Perm(), sys.Uid, sys.Gid)
	}
	// A new file has the mode of the spec, or the default mode.
	for _, tc := range []struct {
		spec string
		want os.FileMode
	}{{in.path("b/config.json"), 0o604}, {"-", 0o644}} {
		in.stdin = smallSpec
		out := in.path("new.json")
		if code := in.run("--spec", tc.spec, "--cdi-device", "v.com/c=a", "--out", out); code != ExitOK {
			t.Fatal(code, in.stderr.String())
		}
		if st, err := os.Stat(out); err != nil || st.Mode().Perm() != tc.want {
			t.Errorf("%v, %v", st, err)
		}
		if err := os.Remove(out); err != nil {
			t.Fatal(err)
		}
	}
}

// A reader of the file never finds a part of it while it is replaced.
func TestInjectReplacesFileAtomically(t *testing.T) {
	in := newInjector(t)
	in.write("b/config.json", smallSpec, 0o644)
	var done atomic.Bool
	read := make(chan error, 1)
	go func() {
		for n := 0; !done.Load() || n == 0; n++ {
			text, err := os.ReadFile(in.path("b/config.json"))
			if err == nil && !json.Valid(text) {
				err = fmt.Errorf("found %q", text)
			}
			if err != nil {
				read <- err
				return
			}
		}
		read <- nil
	}()
	for i := range 40 {
		if code := in.run("--bundle", in.path("b"), "--cdi-device", "v.com/c="+string("ab"[i%2])); code != ExitOK {
			t.Error(code, in.stderr.String())
			break
		}
	}
	done.Store(true)
	if err := <-read; err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(in.path("b")); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestInjectBoundsInput(t *testing.T) {
	in := newInjector(t)
	in.stdin = smallSpec + strings.Repeat(" ", maxSpec)
	if code := in.run("--spec", "-", "--cdi-device", "v.com/c=a"); code != ExitError || !strings.Contains(in.stderr.String(), "more than the 67108864 bytes allowed") || in.stdout.Len() > 0 {
		t.Error(code, in.stderr.String())
	}
	in.write("big.json", in.stdin, 0o644)
	if code := in.run("--spec", in.path("big.json"), "--cdi-device", "v.com/c=a"); code != ExitError || !strings.Contains(in.stderr.String(), "more than the 67108864 allowed") {
		t.Error(code, in.stderr.String())
	}
}

// The ID of a bundle is unique, and can be the name of a directory.
func TestRecordIDIsUniqueAndSafe(t *testing.T) {
	seen := map[string]bool{}
	for _, bundle := range []string{"/a/userdata", "/b/userdata", "/x/ö y/..z", "/" + strings.Repeat("n", 300), "/"} {
		in := injection{file: specFile{bundle: bundle}}
		id, err := in.recordID()
		if err != nil || seen[id] || len(id) > 128 || strings.ContainsAny(id, "/. ö") || id == "" {
			t.Errorf("%s: %q, %v", bundle, id, err)
		}
		seen[id] = true
		if again, _ := in.recordID(); again != id {
			t.Errorf("%s: %q and %q", bundle, id, again)
		}
	}
}

// A new file from standard input has the mode that the umask leaves: environments hold secrets.
func TestInjectNewFileHonoursUmask(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	in := newInjector(t)
	in.stdin = `{"ociVersion":"1.0.2"}`
	if status := in.run("--spec", "-", "--cdi-device", "v.com/c=a", "--out", in.path("out.json")); status != ExitOK {
		t.Fatalf("exit status %d: %s", status, &in.stderr)
	}
	if st, err := os.Stat(in.path("out.json")); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

// Root injects and removes by a configuration of root only: another user's would grant everything.
func TestInjectRefusesConfigurationOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	in := newInjector(t)
	in.write("b/config.json", smallSpec, 0o644)
	const rules = "policy: {rules: [{name: r, for: {namespaces: [\"\"]}, allow: {cdi: [\"*\"]}}]}\n"
	in.write("config.yaml", "stateDir: "+in.path("state")+"\n"+rules, 0o644)
	runs := [][]string{{"--bundle", in.path("b"), "--cdi-device", "v.com/c=a"}, {"--remove", "--container-id", "x"}}
	for _, args := range runs {
		if code := in.run(append(args, "--config", in.path("config.yaml"))...); code != ExitOK {
			t.Fatalf("%v with a configuration of root: %d: %s", args, code, in.stderr.String())
		}
	}
	if err := os.Chown(in.path("config.yaml"), 12345, -1); err != nil {
		t.Fatal(err)
	}
	for _, args := range runs {
		code := in.run(append(args, "--config", in.path("config.yaml"))...)
		if code != ExitError || !strings.Contains(in.stderr.String(), "owned by uid 12345") {
			t.Errorf("%v: %d: %s", args, code, in.stderr.String())
		}
	}
}
