// SPDX-License-Identifier: Apache-2.0

package diag

import "testing"

func TestPCIAddress(t *testing.T) {
	for _, tc := range []struct {
		text, address string
		wellFormed    bool
	}{
		{"0000:3b:00.2", "0000:3b:00.2", true},
		{"0000:3B:1f.7", "0000:3b:1f.7", true},
		{"10000:3b:00.2", "10000:3b:00.2", true},
		{"0000:3b:0.2", "0000:3b:00.2", false},
		{"3b:00.2", "0000:3b:00.2", false},
		{"0:3b:00.2", "0000:3b:00.2", false},
		{"0000:3b:00.02", "0000:3b:00.2", false},
		{"0000:3b:20.2", "", false},
		{"0000:3b:00.8", "", false},
		{"0000:3b:00", "", false},
		{"0000::00.2", "", false},
		{"0000:3b:00.2:1", "", false},
		{"0000000000:3b:00.2", "", false},
		{"vendor.com/net", "", false},
		{"", "", false},
	} {
		if address, wellFormed := PCIAddress(tc.text); address != tc.address || wellFormed != tc.wellFormed {
			t.Errorf("%q: %q, %v, want %q, %v", tc.text, address, wellFormed, tc.address, tc.wellFormed)
		}
		if hint := MalformedPCIAddress(tc.text); (hint != "") != (tc.address != "" && !tc.wellFormed) {
			t.Errorf("%q: %q", tc.text, hint)
		}
	}
}
