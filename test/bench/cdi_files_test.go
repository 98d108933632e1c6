// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// cdiSizes has the numbers of spec files with which every CDI benchmark runs.
var cdiSizes = []int{10, 100, 1000, 5000}

const (
	cdiKind    = "vendor.example.com/accelerator"
	cdiDevices = 4 // in a file
)

// cdiSpec returns a spec file as a driver writes it for a claim: four devices with nodes, mounts, env
// and a hook, about 2 KB of JSON.
func cdiSpec(file int) []byte {
	spec := specs.Spec{
		Version: "0.7.0",
		Kind:    cdiKind,
		ContainerEdits: specs.ContainerEdits{
			Env:         []string{"VENDOR_DRIVER_CAPABILITIES=all", fmt.Sprintf("VENDOR_CLAIM=claim-%d", file)},
			DeviceNodes: []*specs.DeviceNode{{Path: "/dev/null", HostPath: "/dev/null", Permissions: "rw"}},
			Mounts: []*specs.Mount{{
				HostPath: "/usr/lib/x86_64-linux-gnu/libvendor.so.1", ContainerPath: "/usr/lib/x86_64-linux-gnu/libvendor.so.1",
				Options: []string{"ro", "nosuid", "nodev", "bind"},
			}},
			Hooks: []*specs.Hook{{
				HookName: "createContainer", Path: "/usr/bin/vendor-ctk",
				Args: []string{"vendor-ctk", "hook", "update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu"},
			}},
		},
	}
	for d := range cdiDevices {
		n := file*cdiDevices + d
		spec.Devices = append(spec.Devices, specs.Device{
			Name:        cdiDevice(file, d),
			Annotations: map[string]string{"vendor.example.com/uuid": fmt.Sprintf("0a0b0c0d-0000-4000-8000-%012d", n)},
			ContainerEdits: specs.ContainerEdits{
				Env: []string{fmt.Sprintf("VENDOR_DEVICE_%d=%d", d, n)},
				DeviceNodes: []*specs.DeviceNode{{
					Path: fmt.Sprintf("/dev/vendor%d", d), HostPath: "/dev/zero", Type: "c", Major: 1, Minor: 5, Permissions: "rw",
				}},
				Mounts: []*specs.Mount{{
					HostPath: fmt.Sprintf("/var/lib/vendor/claims/%d/%d", file, d), ContainerPath: fmt.Sprintf("/var/lib/vendor/%d", d),
					Options: []string{"rw", "nosuid", "nodev", "bind"},
				}},
			},
		})
	}
	b, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return b
}

func cdiDevice(file, d int) string { return fmt.Sprintf("claim-%d-dev-%d", file, d) }

// cdiQualified returns the qualified name of a device.
func cdiQualified(file, d int) string { return cdiKind + "=" + cdiDevice(file, d) }

// cdiDirectory creates a directory with n spec files.
func cdiDirectory(tb testing.TB, n int) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "cdi")
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		cdiPlace(tb, dir, i)
	}
	return dir
}

// cdiPlace renames a spec file into the directory, as writers should.
func cdiPlace(tb testing.TB, dir string, file int) {
	tb.Helper()
	tmp := filepath.Join(dir, fmt.Sprintf(".claim-%d.tmp", file))
	if err := os.WriteFile(tmp, cdiSpec(file), 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(tmp, cdiFile(dir, file)); err != nil {
		tb.Fatal(err)
	}
}

func cdiFile(dir string, file int) string {
	return filepath.Join(dir, fmt.Sprintf("vendor.example.com-accelerator_claim-%d.json", file))
}
