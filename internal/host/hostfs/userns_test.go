// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"slices"
	"strings"
	"testing"
)

func TestRootOutsideIsFromIDMap(t *testing.T) {
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
		if root, inside := rootOutside([]byte(mapped)); root != want.root || inside != want.inside {
			t.Errorf("%q: %d, %v, want %v", mapped, root, inside, want)
		}
	}
}

// The result for this process is consistent in every user namespace.
func TestUserNamespaceOfProcessIsConsistent(t *testing.T) {
	if o, inside := UserNamespace(); !inside && o != (Outside{}) || inside && o.Unmapped == 0 {
		t.Errorf("%+v, %v", o, inside)
	}
}

func TestIDMapTranslatesIDs(t *testing.T) {
	got, err := ParseIDMap([]byte("         0     200000      65536\n     70000          5          1\n"))
	if want := []IDMap{{0, 200000, 65536}, {70000, 5, 1}}; err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
	for _, c := range []struct {
		id, want uint32
		ok       bool
	}{{0, 200000, true}, {65535, 265535, true}, {65536, 0, false}, {70000, 5, true}, {70001, 0, false}, {1<<32 - 1, 0, false}} {
		if host, ok := IDOutside(got, c.id); host != c.want || ok != c.ok {
			t.Errorf("user %d: host ID %d, mapped %t; want %d, %t", c.id, host, ok, c.want, c.ok)
		}
	}
	// Mappings of a configuration can be invalid for the kernel.
	for _, invalid := range []IDMap{{0, 1<<32 - 1, 1}, {0, 1<<32 - 2, 5}, {1<<32 - 1, 0, 1<<32 - 1}} {
		if host, ok := IDOutside([]IDMap{invalid}, invalid.Inside+min(invalid.Size-1, 4)); ok && host != 0 {
			t.Errorf("mapping %v: host ID %d", invalid, host)
		}
	}
	for _, bad := range []string{"0 200000\n", "0 200000 65536 1\n", "0 -1 1\n", "0 0 0\n", "0 4294967295 1\n", "a b c\n", "\n",
		strings.Repeat("0 1 1\n", maxIDMapLines+1)} {
		if got, err := ParseIDMap([]byte(bad)); err == nil {
			t.Errorf("ParseIDMap(%.40q) = %v, want an error", bad, got)
		}
	}
}

func FuzzParseIDMap(f *testing.F) {
	f.Add([]byte("         0     200000      65536\n"), uint32(7))
	f.Add([]byte("0 4294967295 4294967295\n"), ^uint32(0))
	f.Fuzz(func(t *testing.T, data []byte, id uint32) {
		ranges, err := ParseIDMap(data)
		if err != nil {
			return
		}
		host, ok := IDOutside(ranges, id)
		in := slices.ContainsFunc(ranges, func(r IDMap) bool {
			return host >= r.Outside && uint64(host) < uint64(r.Outside)+uint64(r.Size)
		})
		if ok && !in || ok && host == ^uint32(0) {
			t.Errorf("%q maps %d to %d", data, id, host)
		}
	})
}
