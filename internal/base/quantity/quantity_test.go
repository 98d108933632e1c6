// SPDX-License-Identifier: Apache-2.0

package quantity

import "testing"

func TestParseSizeAcceptsBinaryUnitsInBounds(t *testing.T) {
	for text, want := range map[string]uint64{"4096": 4096, "4Ki": 4096, "64Ki": 64 << 10, "1Mi": 1 << 20, "1Gi": 1 << 30,
		"": 0, "0": 0, "4095": 0, "1": 0, "2Gi": 0, "-1Mi": 0, "+1Mi": 0, "1M": 0, "1 Mi": 0, "1.5Mi": 0, "Mi": 0, "1MiKi": 0, "4294967295Gi": 0, "18446744073709551616": 0} {
		if got, ok := ParseSize(text); ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %d, %t; want %d", text, got, ok, want)
		}
	}
}

func TestParseRateAcceptsDecimalUnitsInBounds(t *testing.T) {
	for text, want := range map[string]uint64{"1000": 1000, "1K": 1000, "25M": 25e6, "1G": 1e9, "10T": 1e13,
		"": 0, "0": 0, "999": 0, "11T": 0, "-1M": 0, "+1M": 0, "1k": 0, "1Mi": 0, "1.5G": 0, "1 G": 0, "G": 0, "1GM": 0, "18446744073709551616": 0, "18446744073709552T": 0} {
		if got, ok := ParseRate(text); ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %d, %t; want %d", text, got, ok, want)
		}
	}
}

func TestMemoryReadsItsOwnText(t *testing.T) {
	for text, want := range map[string]string{"unlimited": "unlimited", "65536": "64Ki", "1024Ki": "1Mi", "2Gi": "2Gi", "64Ti": "64Ti",
		"65537": "65537", "": "", "0": "", "63Ki": "", "65Ti": "", "Unlimited": "", "-1": "", "infinity": "", "1G": ""} {
		m, ok := ParseMemory(text)
		if ok != (want != "") || ok && m.String() != want {
			t.Errorf("%q: %q, %t; want %q", text, m, ok, want)
		}
	}
}
