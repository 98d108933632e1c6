// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// Concurrent injections into one file, by different paths, keep each other's edits.
func TestInjectConcurrently(t *testing.T) {
	dir := t.TempDir()
	file, link, other := filepath.Join(dir, "config.json"), filepath.Join(dir, "link.json"), filepath.Join(dir, "other")
	if err := errors.Join(os.Symlink(dir, other), os.Symlink("config.json", link)); err != nil {
		t.Fatal(err)
	}
	for name, forms := range map[string][]specFile{
		"bundle":        {{bundle: dir}},
		"spec and -o":   {{spec: file, out: file}},
		"bundle and -o": {{bundle: dir, out: file}},
		"all of them": {{bundle: dir}, {spec: file, out: file}, {bundle: other, out: link}, {spec: link, out: file}, {spec: file, out: filepath.Join(other, "link.json")},
			{spec: dir + "/./other/config.json", out: dir + "//config.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.WriteFile(file, []byte("{}"), 0o640), os.Chmod(file, 0o640)); err != nil {
				t.Fatal(err)
			}
			const writers = 24
			var all sync.WaitGroup
			for i := range writers {
				all.Go(func() {
					var f specFile
					var err error
					// On a busy machine the others may hold the lock longer than the timeout.
					testkit.Until(func() bool {
						f = forms[i%len(forms)]
						err = f.readSpec(strings.NewReader(""))
						return !errdefs.IsUnavailable(err)
					})
					if err == nil {
						defer f.close()
						time.Sleep(time.Millisecond)
						err = f.writeSpec(&bytes.Buffer{}, fmt.Appendf(f.text, "%d,", i))
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			text, err := os.ReadFile(file)
			if n := strings.Count(string(text), ","); err != nil || n != writers {
				t.Errorf("%d of %d are there: %s, %v", n, writers, text, err)
			}
			if st, err := os.Lstat(file); err != nil || st.Mode() != 0o640 {
				t.Errorf("file mode is %v, %v", st.Mode(), err)
			}
			if to, err := os.Readlink(link); err != nil || to != "config.json" {
				t.Errorf("the symlink leads to %q, %v", to, err)
			}
		})
	}
}

// Concurrent commands whose -o names the file of --spec keep each other's edits.
func TestInjectCommandsConcurrently(t *testing.T) {
	const commands = 12
	in := newInjector(t)
	for i := range commands {
		in.write(fmt.Sprintf("cdi/w%d.json", i), fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":"w%d.com/c","devices":[{"name":"a","containerEdits":{"env":["W%d=x"]}}]}`, i, i), 0o644)
	}
	in.write("config.json", smallSpec, 0o600)
	var all sync.WaitGroup
	for i := range commands {
		all.Go(func() {
			var one *injector
			var code int
			testkit.Until(func() bool {
				one = &injector{t: t, dir: in.dir}
				code = one.run("--spec", in.path("config.json"), "--out", in.path("config.json"), "--cdi-device", fmt.Sprintf("w%d.com/c=a", i))
				return !strings.Contains(one.stderr.String(), "run this again")
			})
			if code != ExitOK {
				t.Error(code, one.stderr.String())
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(in.path("config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range commands {
		if !strings.Contains(string(text), fmt.Sprintf(`"W%d=x"`, i)) {
			t.Errorf("the edit of command %d is lost: %s", i, text)
		}
	}
}

// Replacing one hard link of a file leaves the other one unchanged.
func TestInjectHardLink(t *testing.T) {
	dir := t.TempDir()
	file, second := filepath.Join(dir, "config.json"), filepath.Join(dir, "second.json")
	if err := errors.Join(os.WriteFile(file, []byte("{}"), 0o600), os.Link(file, second)); err != nil {
		t.Fatal(err)
	}
	f := specFile{spec: file, out: second}
	err := f.readSpec(nil)
	if err == nil {
		defer f.close()
		err = f.writeSpec(nil, []byte(`{"new":1}`))
	}
	a, err1 := os.ReadFile(file)
	b, err2 := os.ReadFile(second)
	if err := errors.Join(err, err1, err2); err != nil || string(a) != "{}" || string(b) != `{"new":1}` {
		t.Errorf("%s and %s, %v", a, b, err)
	}
}

// The wait for the lock has a timeout.
func TestInjectLockTimesOut(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := specFile{bundle: dir}
	if err := first.readSpec(nil); err != nil {
		t.Fatal(err)
	}
	defer first.close()
	second, err := openFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	if err := second.lockDirectory(20 * time.Millisecond); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "run this again") {
		t.Errorf("%v", err)
	}
	// An injection that writes another file does not wait.
	third := specFile{bundle: dir, out: "-"}
	if err := third.readSpec(nil); err != nil {
		t.Error(err)
	}
	third.close()
}
