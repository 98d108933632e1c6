// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Events are those that the kernel wrote, with names without NULs. An event that is cut short is
// an overflow.
func TestInotifyEventsAreThoseOfKernel(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	wd, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE_SELF)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a-much-longer-name-than-the-other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	var got []inotifyEvent
	for ev := range inotifyEvents(buf[:n]) {
		got = append(got, ev)
	}
	want := []struct {
		mask uint32
		name string
	}{{unix.IN_CREATE | unix.IN_ISDIR, "a"}, {unix.IN_CREATE | unix.IN_ISDIR, "a-much-longer-name-than-the-other"}, {unix.IN_DELETE_SELF, ""}, {unix.IN_IGNORED, ""}}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i, ev := range got {
		if ev.WD != int32(wd) || ev.Mask != want[i].mask || string(ev.Name) != want[i].name {
			t.Errorf("event %d: %+v, want %+v", i, ev, want[i])
		}
	}
	for cut := 1; cut < n; cut++ {
		last := inotifyEvent{}
		for ev := range inotifyEvents(buf[:cut]) {
			last = ev
		}
		if whole := len(sizes(buf[:cut])) > 0; !whole && last.Mask != unix.IN_Q_OVERFLOW {
			t.Errorf("cut at %d: the last event is %+v, want an overflow", cut, last)
		}
	}
}

// sizes returns one element for a buffer of whole events, and none for any other buffer.
func sizes(buf []byte) []int {
	for at := 0; ; {
		if at == len(buf) {
			return []int{at}
		}
		if len(buf)-at < unix.SizeofInotifyEvent {
			return nil
		}
		at += unix.SizeofInotifyEvent + int(buf[at+12]) // of names of fewer than 256 bytes
		if at > len(buf) {
			return nil
		}
	}
}

func FuzzInotifyEvents(f *testing.F) {
	f.Add(make([]byte, 16))
	f.Add(append(make([]byte, 12), 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, buf []byte) {
		n := 0
		for ev := range inotifyEvents(buf) {
			n += unix.SizeofInotifyEvent + len(ev.Name)
		}
		if n > len(buf)+unix.SizeofInotifyEvent {
			t.Errorf("%d bytes of events in %d", n, len(buf))
		}
	})
}
