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
)

// Injections into one bundle at once: each finds what the others did.
func TestInjectAtOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	const writers = 20
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			f := specFile{bundle: dir}
			err := f.read(strings.NewReader(""))
			if err == nil {
				defer f.close()
				time.Sleep(time.Millisecond)
				err = f.write(&bytes.Buffer{}, fmt.Appendf(f.text, "%d,", i))
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
}

// Who waits for a lock gives up some time.
func TestInjectGivesUpWaiting(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := specFile{bundle: dir}
	if err := first.read(nil); err != nil {
		t.Fatal(err)
	}
	defer first.close()
	second, err := openPlace(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	if err := second.lock(20 * time.Millisecond); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "run this again") {
		t.Errorf("%v", err)
	}
	// Whoever writes elsewhere has nothing to wait for.
	third := specFile{bundle: dir, out: "-"}
	if err := third.read(nil); err != nil {
		t.Error(err)
	}
	third.close()
}
