// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// openCache returns a cache of a temporary directory, for which programs use the directories
// of the host (cdi.Options{}), and a function that removes it.
func openCache() (*cdi.Cache, func()) {
	dir, err := os.MkdirTemp("", "cdi")
	if err != nil {
		log.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.Options{SpecDirs: []string{dir}})
	if err != nil {
		log.Fatal(err)
	}
	return cache, func() {
		cache.Close()
		os.RemoveAll(dir)
	}
}

var gpuSpec = &specs.Spec{
	Version: "0.7.0",
	Kind:    "vendor.com/gpu",
	Devices: []specs.Device{
		{Name: "gpu0", ContainerEdits: specs.ContainerEdits{Env: []string{"GPU=0"}}},
		{Name: "gpu1", ContainerEdits: specs.ContainerEdits{Env: []string{"GPU=1"}}},
	},
	ContainerEdits: specs.ContainerEdits{Env: []string{"VENDOR=yes"}},
}

// A driver writes a spec file, and a runtime injects a device into a container.
func Example() {
	cache, remove := openCache()
	defer remove()
	if _, err := cache.WriteSpec(gpuSpec, cdi.GenerateSpecName("vendor.com", "gpu")); err != nil {
		log.Fatal(err)
	}

	fmt.Println(cache.ListVendors(), cache.ListClasses(), cache.ListDevices())
	spec := &rspec.Spec{Version: rspec.Version, Process: &rspec.Process{Env: []string{"PATH=/bin"}}}
	if _, err := cache.InjectDevices(spec, "vendor.com/gpu=gpu1"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(spec.Process.Env)
	// Output:
	// [vendor.com] [gpu] [vendor.com/gpu=gpu0 vendor.com/gpu=gpu1]
	// [PATH=/bin VENDOR=yes GPU=1]
}

// The error of a device that does not exist names those that are similar.
func ExampleCache_InjectDevices_unresolved() {
	cache, remove := openCache()
	defer remove()
	if _, err := cache.WriteSpec(gpuSpec, "vendor.json"); err != nil {
		log.Fatal(err)
	}

	unresolved, err := cache.InjectDevices(&rspec.Spec{}, "vendor.com/gpu=gpu0", "vendor.com/gpu=gpu7")
	fmt.Println(unresolved)
	var missing *cdi.NotFoundError
	if errors.As(err, &missing) {
		fmt.Println(missing.Explain().Nearest)
	}
	// Output:
	// [vendor.com/gpu=gpu7]
	// [vendor.com/gpu=gpu0 vendor.com/gpu=gpu1]
}

// A DRA driver writes a spec file for one claim, and removes it with the claim.
func ExampleGenerateTransientSpecName() {
	cache, remove := openCache()
	defer remove()
	name, err := cdi.GenerateTransientSpecName("vendor.com", "gpu", "claim-17")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := cache.WriteSpec(gpuSpec, name); err != nil {
		log.Fatal(err)
	}
	fmt.Println(name, len(cache.ListDevices()))
	if err := cache.RemoveSpec(name); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(cache.ListDevices()))
	// Output:
	// vendor.com-gpu_claim-17 2
	// 0
}

// A broken file is reported with the place of each fault, and harms no other file.
func ExampleCache_GetErrors() {
	cache, remove := openCache()
	defer remove()
	if _, err := cache.WriteSpec(gpuSpec, "good"); err != nil {
		log.Fatal(err)
	}
	broken := []byte(`{"cdiVersion": "0.7.0", "kind": "vendor.com/nic", "devices": [{"name": "eth", "containerEdits": {"env": ["VF"]}}]}`)
	if err := os.WriteFile(cache.GetSpecDirectories()[0]+"/broken.json", broken, 0o644); err != nil {
		log.Fatal(err)
	}

	for _, err := range cache.GetErrors() {
		var refused *cdi.SpecError
		if errors.As(err, &refused) {
			for _, d := range refused.Faults {
				fmt.Printf("line %d, column %d, %s: found %s: %s\n", d.Line, d.Column, d.Field, d.Found, d.Rule)
			}
		}
	}
	fmt.Println(cache.ListDevices())
	// Output:
	// line 1, column 106, devices[0].containerEdits.env[0]: found "VF": must be NAME=VALUE
	// [vendor.com/gpu=gpu0 vendor.com/gpu=gpu1]
}

func ExampleParseQualifiedName() {
	vendor, class, name, err := cdi.ParseQualifiedName("vendor.com/gpu=gpu0")
	fmt.Println(vendor, class, name, err)
	_, _, _, err = cdi.ParseQualifiedName("gpu0")
	fmt.Println(err)
	// Output:
	// vendor.com gpu gpu0 <nil>
	// resolve CDI device "gpu0": must be a vendor, a class and a name, such as vendor.com/class=name
}

// A device plugin requests devices by an annotation, and a runtime reads it.
func ExampleUpdateAnnotations() {
	annotations, err := cdi.UpdateAnnotations(nil, "vendor.gpu-plugin", "gpu0", []string{"vendor.com/gpu=gpu0"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(annotations)
	fmt.Println(cdi.ParseAnnotations(annotations))
	// Output:
	// map[cdi.k8s.io/vendor.gpu-plugin_gpu0:vendor.com/gpu=gpu0]
	// [cdi.k8s.io/vendor.gpu-plugin_gpu0] [vendor.com/gpu=gpu0] <nil>
}
