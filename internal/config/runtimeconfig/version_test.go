// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import "testing"

func TestVersionsThatHaveNRI(t *testing.T) {
	for _, tc := range []struct {
		version                 string
		lacks, containerd, crio bool
	}{
		{"", false, false, false},
		{"unknown", false, false, false},
		{"1.6.20", true, false, false},
		{"1.7.24", false, false, false},
		{"1.29.4", false, false, false},
		{"1.30.0", false, false, true},
		{"v2.1.9", false, true, true},
	} {
		if got := LacksNRI(tc.version); got != tc.lacks {
			t.Errorf("LacksNRI(%q) = %v", tc.version, got)
		}
		if got := ContainerdHasNRIOn(tc.version); got != tc.containerd {
			t.Errorf("ContainerdHasNRIOn(%q) = %v", tc.version, got)
		}
		if got := CRIOHasNRIOn(tc.version); got != tc.crio {
			t.Errorf("CRIOHasNRIOn(%q) = %v", tc.version, got)
		}
	}
}
