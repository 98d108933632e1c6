// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/cdi"
)

func open(t *testing.T, opts cdi.Options) *cdi.Cache {
	t.Helper()
	c, err := cdi.NewCache(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func writeSpec(t *testing.T, c *cdi.Cache, spec *specs.Spec, name string) {
	t.Helper()
	if _, err := c.WriteSpec(spec, name); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotKeepsItsDevices(t *testing.T) {
	c := open(t, cdi.Options{SpecDirs: []string{t.TempDir()}})
	s := c.Snapshot()
	writeSpec(t, c, gpuSpec, "gpu")
	if devices := s.Devices(); len(devices) != 0 {
		t.Errorf("devices of an earlier snapshot: %q", devices)
	}
	if err := c.Refresh(); err != nil {
		t.Fatal(err)
	}
	if devices := c.ListDevices(); len(devices) != 2 {
		t.Errorf("devices: %q", devices)
	}
}

func TestFailedInjectionLeavesSpecUnchanged(t *testing.T) {
	c := open(t, cdi.Options{SpecDirs: []string{t.TempDir()}})
	writeSpec(t, c, gpuSpec, "gpu")
	writeSpec(t, c, &specs.Spec{Version: "0.7.0", Kind: "vendor.com/nic", Devices: []specs.Device{
		{Name: "gone", ContainerEdits: specs.ContainerEdits{Env: []string{"A=b"}, DeviceNodes: []*specs.DeviceNode{{Path: "/dev/does-not-exist"}}}},
	}}, "nic")
	spec := &rspec.Spec{Process: &rspec.Process{Env: []string{"PATH=/bin"}}}
	unresolved, err := c.InjectDevices(spec, "vendor.com/gpu=gpu0", "vendor.com/nic=gone")
	if unresolved != nil || !errdefs.IsNotFound(err) {
		t.Errorf("missing device node: %q, %v", unresolved, err)
	}
	if unresolved, err = c.InjectDevices(spec, "vendor.com/gpu=gpu0", "vendor.com/gpu=x", "x"); len(unresolved) != 2 || !errdefs.IsNotFound(err) {
		t.Errorf("missing devices: %q, %v", unresolved, err)
	}
	if diff := cmp.Diff(&rspec.Spec{Process: &rspec.Process{Env: []string{"PATH=/bin"}}}, spec); diff != "" {
		t.Error(diff)
	}
	if _, err := c.InjectDevices(nil, "vendor.com/gpu=gpu0"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no OCI spec: %v", err)
	}
}

func TestErrorsOfFilesAndDirectories(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := open(t, cdi.Options{SpecDirs: []string{file, dir + "/missing", dir}})
	writeSpec(t, c, gpuSpec, "a")
	writeSpec(t, c, gpuSpec, "b")
	errs := c.GetErrors()
	var unreadable *cdi.DirError
	if len(errs) != 3 || !errors.As(errs[file], &unreadable) || !errdefs.IsConflict(errs[dir+"/a.json"]) || !errdefs.IsConflict(errs[dir+"/b.json"]) {
		t.Errorf("errors: %v", errs)
	}
	if err := c.Refresh(); !errdefs.IsConflict(err) {
		t.Errorf("refresh: %v", err)
	}
	if _, err := cdi.NewCache(cdi.Options{SpecDirs: []string{"cdi"}}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("relative directory: %v", err)
	}
	none := open(t, cdi.Options{SpecDirs: []string{}})
	if _, err := none.WriteSpec(gpuSpec, "gpu"); err == nil {
		t.Error("WriteSpec succeeds without a directory")
	}
}
