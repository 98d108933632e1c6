// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"fmt"
	"path"
	"strings"
	"testing"
)

func TestPCIAddressIsReadInKernelForm(t *testing.T) {
	for in, want := range map[string]string{
		"0000:03:00.3":     "0000:03:00.3",
		"ABCD:EF:1F.7":     "abcd:ef:1f.7",
		"10000:e1:00.0":    "10000:e1:00.0",
		"00010000:e1:00.0": "00010000:e1:00.0",
	} {
		if got, err := ParseAddress(in); got != want || err != nil {
			t.Errorf("ParseAddress(%q) = %q, %v", in, got, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"0000:03:00.3", "0000:02:01:6", "10000:e1:00.0", "", ":", "::.", "0000:03:1g.0", "0000:03:1F.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseAddress(s)
		if err != nil {
			return
		}
		if again, err := ParseAddress(got); again != got || err != nil {
			t.Errorf("%q changes when parsed again: %q, %v", got, again, err)
		}
		if !strings.EqualFold(s, got) || path.Base(got) != got || len(got) > 16 {
			t.Errorf("%q gave %q", s, got)
		}
		var domain, bus, device, function uint32
		if n, err := fmt.Sscanf(got, "%x:%x:%x.%x", &domain, &bus, &device, &function); n != 4 || err != nil || device > 31 || function > 7 {
			t.Errorf("%q is not an address: %v", got, err)
		}
	})
}

func FuzzParseDev(f *testing.F) {
	for _, s := range []string{"10:200\n", "10:200", "1:3\n\n", ":", "0:0", "4294967296:0", "-1:3", "01:3", "1:3:5"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		major, minor, err := parseDev(b)
		if err != nil {
			return
		}
		if want := fmt.Sprintf("%d:%d", major, minor); strings.TrimSuffix(string(b), "\n") != want {
			t.Errorf("%q parsed as %s", b, want)
		}
	})
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"mlx5_4", "vdpa0", "..", "a/b", "vdpa:0000:65:00.3", ".a", "a\x00", strings.Repeat("x", 200)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if checkName(s) != nil {
			return
		}
		if p := path.Join("/sys/bus/vdpa/devices", s); path.Dir(p) != "/sys/bus/vdpa/devices" || path.Base(p) != s {
			t.Errorf("%q joins to %q", s, p)
		}
	})
}
