// SPDX-License-Identifier: Apache-2.0

package name

import "testing"

func TestPortNameIsUniqueForEachInterface(t *testing.T) {
	seen := map[string][2]string{}
	for _, o := range [][2]string{{"a", "net1"}, {"a", "net2"}, {"b", "net1"}, {"", ""}} {
		port := Port(o[0], o[1])
		if len(port) != 15 || !IsPort(port) {
			t.Errorf("Port(%q) = %q, want 15 bytes that IsPort accepts", o, port)
		}
		if other, ok := seen[port]; ok {
			t.Errorf("%q and %q have the same name %q", o, other, port)
		}
		seen[port] = o
	}
}

func TestIsPortRefusesOtherNames(t *testing.T) {
	for _, s := range []string{"", "jf", "eth0", "jf0123456789abcd", "jf0123456789abz", "jf0123456789AB0", "xx0123456789ab0"} {
		if IsPort(s) {
			t.Errorf("IsPort(%q) = true", s)
		}
	}
}
