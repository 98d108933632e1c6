// SPDX-License-Identifier: Apache-2.0

// Package ocivalid checks configurations that tests produce with runtime-tools, which knows the rules of the OCI
// runtime specification.
package ocivalid

import (
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/go-multierror"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-tools/validate"
	"github.com/sirupsen/logrus"
)

// Check fails the test if runtime-tools finds faults in an edited configuration that the
// configuration did not have before. It does not check the JSON schema, which runtime-tools
// downloads.
func Check(tb testing.TB, before, after *rspec.Spec) {
	tb.Helper()
	had := faultsOf(tb, before)
	for _, fault := range faultsOf(tb, after) {
		if !slices.Contains(had, fault) {
			tb.Errorf("runtime-tools: %s", fault)
		}
	}
}

func faultsOf(tb testing.TB, spec *rspec.Spec) []string {
	tb.Helper()
	level := logrus.GetLevel()
	logrus.SetLevel(logrus.ErrorLevel) // the warnings are about mounts of the test data
	defer logrus.SetLevel(level)
	complete := *spec
	complete.Version, complete.Root, complete.Process = "1.2.0", &rspec.Root{Path: "rootfs"}, &rspec.Process{}
	if spec.Process != nil {
		*complete.Process = *spec.Process
	}
	complete.Process.Cwd, complete.Process.Args = "/", []string{"sh"}
	if spec.Linux != nil {
		linux := *spec.Linux
		linux.Devices = slices.Clone(linux.Devices)
		for i := range linux.Devices {
			if d := &linux.Devices[i]; d.Type != "p" {
				d.Minor = max(d.Minor, 1) // runtime-tools refuses the valid minor number 0
			}
		}
		complete.Linux = &linux
	}
	v, err := validate.NewValidator(&complete, tb.TempDir(), false, "linux")
	if err != nil {
		tb.Fatal(err)
	}
	var faults []string
	for _, check := range []func() error{v.CheckMandatoryFields, v.CheckSemVer, v.CheckMounts, v.CheckProcess, v.CheckLinux, v.CheckAnnotations, v.CheckHooks} {
		err := check()
		var many *multierror.Error
		if errors.As(err, &many) {
			for _, err := range many.Errors {
				faults = append(faults, err.Error())
			}
		} else if err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}
