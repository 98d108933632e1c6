// SPDX-License-Identifier: Apache-2.0

package hostfs

import "testing"

func TestRootOutside(t *testing.T) {
	for mapped, want := range map[string]struct {
		root   int64
		inside bool
	}{
		"         0          0 4294967295\n": {-1, false},
		"":                                   {-1, false},
		"no map\n":                           {-1, false},
		"         0       1000          1\n         1     100000      65536\n": {1000, true},
		"1 100000 65536\n0 1000 1\n": {1000, true},
		"0 0 1000\n":                 {0, true},
		"1000 1000 1\n":              {-1, true},
	} {
		if root, inside := rootOutside(mapped); root != want.root || inside != want.inside {
			t.Errorf("%q: %d, %v, want %v", mapped, root, inside, want)
		}
	}
}

// The result for this process is consistent in every user namespace.
func TestUserNamespace(t *testing.T) {
	if o, inside := UserNamespace(); !inside && o != (Outside{}) || inside && o.Unmapped == 0 {
		t.Errorf("%+v, %v", o, inside)
	}
}
