// SPDX-License-Identifier: Apache-2.0

package name

import "testing"

func TestInterfaceNameFollowsKernelRule(t *testing.T) {
	for name, valid := range map[string]bool{
		"eth0": true, "e": true, "net1@x": true, "eth0.100": true, "...": true, "fifteen-bytes-1": true, "münchen": true,
		"": false, ".": false, "..": false, "sixteen-bytes-01": false, "a/b": false, "a:1": false, "a b": false,
		"a\tb": false, "a\nb": false, "a\vb": false, "a\u00a0b": false, "a\u2028b": false, "a\x00b": false,
		"a\x1b[1m": false, "a\x7f": false, "a\xff": false, "üüüüüüüü": false,
	} {
		if got := IsInterface(name); got != valid {
			t.Errorf("IsInterface(%q) = %v", name, got)
		}
	}
}
