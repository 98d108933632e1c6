// SPDX-License-Identifier: Apache-2.0

package cdiregistry_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

const gpuSpec = `{"cdiVersion":"0.6.0","kind":"vendor.com/gpu","containerEdits":{"env":["A=1"]},
"devices":[{"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/null"}]}},
{"name":"1","containerEdits":{"deviceNodes":[{"path":"/dev/zero"}]}}]}`

func TestLookup(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "etc/cdi/gpu.json"), gpuSpec)
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	r, err := cdiregistry.New(host, cdiregistry.DefaultDirs(), cdiregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := r.Snapshot()
	d, err := s.Device("vendor.com/gpu=1")
	if err != nil {
		t.Fatal(err)
	}
	if d.File != "/etc/cdi/gpu.json" || d.Index != 1 || d.Edits.DeviceNodes[0].Path != "/dev/zero" || d.SpecEdits.Env[0] != "A=1" {
		t.Errorf("device is %+v", d)
	}
	_, err = s.Device("vendor.com/gpu=2")
	var nf *cdiregistry.NotFoundError
	if !errors.As(err, &nf) || nf.Reason != cdiregistry.NoDevice || !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("unknown device: %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
