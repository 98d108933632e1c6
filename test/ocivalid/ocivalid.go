// SPDX-License-Identifier: Apache-2.0

// Package ocivalid checks configurations that tests produce with runtime-tools, which knows the rules of the OCI
// runtime specification.
package ocivalid

import (
	"encoding/json"
	"errors"
	"fmt"
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
	faults, err := newFaults(before, after)
	if err != nil {
		tb.Fatal(err)
	}
	for _, fault := range faults {
		tb.Errorf("runtime-tools: %s", fault)
	}
}

// CheckText is Check for the texts of configurations.
func CheckText(tb testing.TB, before, after []byte) {
	tb.Helper()
	if err := Compare(before, after); err != nil {
		tb.Error(err)
	}
}

// Compare is CheckText outside of a test. The error has the faults.
func Compare(before, after []byte) error {
	var had, has rspec.Spec
	if err := errors.Join(json.Unmarshal(before, &had), json.Unmarshal(after, &has)); err != nil {
		return err
	}
	faults, err := newFaults(&had, &has)
	if err == nil && len(faults) > 0 {
		err = fmt.Errorf("runtime-tools: %q", faults)
	}
	return err
}

// newFaults returns the faults of a configuration that it did not have before.
func newFaults(before, after *rspec.Spec) ([]string, error) {
	had, err1 := faultsOf(before)
	has, err2 := faultsOf(after)
	has = slices.DeleteFunc(has, func(fault string) bool { return slices.Contains(had, fault) })
	return has, errors.Join(err1, err2)
}

func faultsOf(spec *rspec.Spec) ([]string, error) {
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
	v, err := validate.NewValidator(&complete, "/", false, "linux")
	if err != nil {
		return nil, err
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
	return faults, nil
}
