// SPDX-License-Identifier: Apache-2.0

package cdiregistry_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// TestDescriptorsShort has none, or a few, when a directory is read for the first
// time, and when a file in it changes: what could not be read is read when there are
// some again.
func TestDescriptorsShort(t *testing.T) {
	for _, m := range modes {
		for left := range 9 {
			for _, read := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d left/read before %v", m.name, left, read), func(t *testing.T) {
					e := newEnv(t, m)
					e.place("/etc/cdi/a.json", spec("1", "x"))
					if read {
						e.want("x", "1")
					}
					give := e.holdDescriptors(left)
					if read {
						e.must(os.Rename(e.top+"/etc/cdi/a.json", e.top+"/etc/cdi/b.json"))
					}
					e.r.Snapshot()
					e.r.Snapshot()
					give()
					s := e.r.Snapshot()
					if diff := cmp.Diff(contents(newRegistry(t, e, cdiregistry.Options{DisableWatch: true}).Snapshot()), contents(s)); diff != "" {
						t.Errorf("(-fresh +registry):\n%s", diff)
					}
					if next := e.r.Snapshot(); next.Generation() != s.Generation() {
						t.Error("it is read again and again")
					}
					e.place("/etc/cdi/c.json", spec("2", "y"))
					e.want("y", "2")
				})
			}
		}
	}
}

// holdDescriptors takes all descriptors that the process may have but a few, until
// the function is called.
func (e *env) holdDescriptors(left int) (give func()) {
	e.Helper()
	var limit unix.Rlimit
	e.must(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	open, err := os.ReadDir("/proc/self/fd")
	e.must(err)
	low := limit
	low.Cur = uint64(len(open)) + 64 // numbers may have gaps
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
