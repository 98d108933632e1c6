// SPDX-License-Identifier: Apache-2.0

package attach

import "testing"

// A conflict names the program that holds a directory.
func TestHolderNamesProgram(t *testing.T) {
	for adapter, want := range map[string]string{"": "cni", "netavark": "netavark"} {
		a := &Attachment{Adapter: adapter}
		if got := a.holder("sandbox").Adapter; got != want {
			t.Errorf("adapter %q: the holder is %q, want %q", adapter, got, want)
		}
	}
}
