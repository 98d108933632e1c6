// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"errors"
	"testing"

	"github.com/containerd/errdefs"
)

func TestRefusalNamesSwitchPortFieldAndRemedy(t *testing.T) {
	err := error(&Refusal{Switch: "ovs0", Port: "jf1", Field: "bridge", Said: "no bridge br9", Remedy: "create it", Kind: errdefs.ErrNotFound})
	if want := `vswitch "ovs0" refuses port "jf1": bridge: no bridge br9: create it`; err.Error() != want {
		t.Errorf("got %s\nwant %s", err, want)
	}
	if !errors.Is(err, errdefs.ErrNotFound) {
		t.Error("the sentinel is lost")
	}
}
