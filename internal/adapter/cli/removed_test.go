// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fullDisk is a standard output that takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// Commands that remove files print which. It is an error if they cannot.
func TestRemovedFilesThatCannotBePrintedAreAnError(t *testing.T) {
	root := t.TempDir()
	id := strings.Repeat("0123", 16)
	for _, args := range []string{
		"cdi transient --remove --alive - --older-than 0s",
		"deviceinfo clean --sandbox-id " + id,
		"deviceinfo clean --orphans --older-than 0s --keep-sandboxes " + strings.Repeat("f", 64),
	} {
		for file, text := range map[string]string{
			"var/run/cdi/v.com-net_a.json":                         `{"cdiVersion": "0.6.0", "kind": "v.com/net", "devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}]}`,
			"var/run/k8s.cni.cncf.io/devinfo/cni/n-d-" + id + "_n": `{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "path": "/x"}}`,
		} {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		var errs bytes.Buffer
		env := Env{Stdin: strings.NewReader("b\n"), Stdout: fullDisk{}, Stderr: &errs, Getenv: func(string) string { return "" }}
		if got := Run(t.Context(), append(strings.Fields(args), "--root", root), env); got != ExitError || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%s: exit status %d: %s", args, got, errs.String())
		}
	}
}
