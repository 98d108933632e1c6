// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// resident is the kilobytes of the process that are mapped from files, those of a
// tmpfs included, where the tests' binary may lie.
func resident(t *testing.T) (kib int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"RssFile", "RssShmem"} {
		_, rest, ok := strings.Cut(string(data), "\n"+name+":")
		if !ok {
			t.Fatalf("the kernel does not tell of files in memory: %s, Linux 4.5", name)
		}
		n := 0
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
		kib += n
	}
	return kib
}

func TestTrim(t *testing.T) {
	before := resident(t)
	trim()
	after := resident(t)
	t.Logf("%d KiB of files before, %d after", before, after)
	if after >= before {
		t.Errorf("%d KiB of files before, and %d after", before, after)
	}
}

func TestConstant(t *testing.T) {
	const maps = `00400000-00a41000 r-xp 00000000 00:2c 7 /usr/bin/nri
00a41000-01103000 r--p 00641000 00:2c 7 /usr/bin/nri
01103000-01178000 rw-p 00d03000 00:2c 7 /usr/bin/nri
02000000-02001000 r--p 00000000 00:2c 9 /usr/bin/other
02002000-02003000 r--p 00000000 00:2c 9 /mnt/usr/bin/nri
02004000-02005000 r--s 00000000 00:2c 7 /usr/bin/nri
7fb053450000-7fb053700000 r--p 00000000 00:00 0
x-y r--p 00000000 00:2c 7 /usr/bin/nri
`
	var got []string
	for from, to := range constant(maps, "/usr/bin/nri") {
		got = append(got, fmt.Sprintf("%x-%x", from, to))
	}
	if want := "400000-a41000 a41000-1103000"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
