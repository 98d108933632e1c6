// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// TestMissingCDIDeviceHasRemedies checks the commands that the error of a missing device names. Missing directories cannot be
// validated.
func TestMissingCDIDeviceHasRemedies(t *testing.T) {
	h := newHost(t, "enforce")
	testkit.Must(t, os.Remove(h.dir+"/run/cdi"))
	const devices, validate = "run `jackfield devices` to list the devices", " and `jackfield validate /etc/cdi` to check the files"
	for name, want := range map[string][]string{
		"vendor.com/net=z": {devices + validate},
		"nvidia.com/gpu=0": {"run `jackfield cdi generate nvidia` to create one from what the driver reports", devices + validate},
	} {
		_, err := h.e.Registry().Snapshot().Device(name)
		var none *cdi.NotFoundError
		if !errors.As(err, &none) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, remediesOf(none, false)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{devices}, remediesOf(none, true)); diff != "" {
			t.Errorf("%s, short (-want +got):\n%s", name, diff)
		}
	}
}
