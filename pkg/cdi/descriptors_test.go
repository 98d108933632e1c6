// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// TestCacheRecoversWhenDescriptorsAreUsedUp uses up all or most descriptors before a directory is first read, and before
// a file in it changes. The registry reads the files as soon as descriptors are free again.
func TestCacheRecoversWhenDescriptorsAreUsedUp(t *testing.T) {
	for _, m := range modes {
		for left := range 9 {
			for _, read := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d left/read before %v", m.name, left, read), func(t *testing.T) {
					e := newEnv(t, m)
					e.renameIntoPlace("/etc/cdi/a.json", specText("1", "x"))
					if read {
						e.wantDevice("x", "1")
					}
					release := e.holdDescriptors(left)
					if read {
						e.must(os.Rename(e.top+"/etc/cdi/a.json", e.top+"/etc/cdi/b.json"))
					}
					e.r.Snapshot()
					e.r.Snapshot()
					release()
					s := e.r.Snapshot()
					if diff := cmp.Diff(snapshotText(newCache(t, e, cdi.Options{DisableWatch: true}).Snapshot()), snapshotText(s)); diff != "" {
						t.Errorf("(-fresh +registry):\n%s", diff)
					}
					if e.r.Snapshot() != s {
						t.Error("a new snapshot although nothing changed")
					}
					e.renameIntoPlace("/etc/cdi/c.json", specText("2", "y"))
					e.wantDevice("y", "2")
				})
			}
		}
	}
}

// holdDescriptors uses up the descriptors that the process may open, except for some, until the returned
// function is called.
func (e *env) holdDescriptors(left int) (release func()) {
	e.Helper()
	var limit unix.Rlimit
	e.must(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	open, err := os.ReadDir("/proc/self/fd")
	e.must(err)
	low := limit
	low.Cur = uint64(len(open)) + 64 // descriptor numbers may have gaps
	e.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	var held []int
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		held = append(held, fd)
	}
	free := func(n int) {
		for _, fd := range held[len(held)-n:] {
			unix.Close(fd)
		}
		held = held[:len(held)-n]
	}
	free(min(left, len(held)))
	return func() {
		e.Helper()
		free(len(held))
		e.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	}
}
