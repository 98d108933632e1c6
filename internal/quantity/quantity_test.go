// SPDX-License-Identifier: Apache-2.0

package quantity

import "testing"

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{"4096": 4096, "4Ki": 4096, "64Ki": 64 << 10, "1Mi": 1 << 20, "1Gi": 1 << 30,
		"": 0, "0": 0, "4095": 0, "1": 0, "2Gi": 0, "-1Mi": 0, "+1Mi": 0, "1M": 0, "1 Mi": 0, "1.5Mi": 0, "Mi": 0, "1MiKi": 0, "4294967295Gi": 0, "18446744073709551616": 0} {
		if got, ok := ParseSize(text); ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %d, %t; want %d", text, got, ok, want)
		}
	}
}
