// SPDX-License-Identifier: Apache-2.0

// Command upstream-inject does the same as `jackfield inject --spec FILE` with CDI's own library, for
// benchmarks. Its arguments are DIR, FILE and the names of devices.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir, file string, devices []string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec rspec.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	if _, err := cache.InjectDevices(&spec, devices...); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(&spec)
}
