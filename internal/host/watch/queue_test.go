// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// watchDir adds a directory to a queue.
func watchDir(t *testing.T, q *Queue, dir string, mask uint32) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	id, err := q.Add(fd, mask)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func drain(q *Queue) (events []Event) {
	q.Drain(func(ev Event) { events = append(events, ev) })
	return events
}

func newQueue(t *testing.T) *Queue {
	q := &Queue{}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

func TestDrainReportsEveryChangeBeforeIt(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	for _, c := range []struct {
		name   string
		mask   uint32
		change func() error
		want   []Event // without Dir
	}{
		{"create", Names, func() error { return os.WriteFile(file, []byte("x"), 0o644) }, []Event{{Name: "a.json"}}},
		{"rename", Names, func() error { return os.Rename(file, other) }, []Event{{Name: "a.json", Gone: true}, {Name: "b.json"}}},
		{"attributes are no names", Names, func() error { return os.Chmod(other, 0o600) }, nil},
		{"attributes", Contents, func() error { return os.Chmod(other, 0o644) }, []Event{{Name: "b.json"}}},
		{"truncate", Contents, func() error { return os.Truncate(other, 0) }, []Event{{Name: "b.json"}}},
		{"remove", Contents, func() error { return os.Remove(other) }, []Event{{Name: "b.json", Gone: true}}},
		{"nothing", Contents, func() error { return nil }, nil},
	} {
		q := newQueue(t)
		id := watchDir(t, q, dir, c.mask)
		testkit.Must(t, c.change())
		for i := range c.want {
			c.want[i].Dir = id
		}
		if got := drain(q); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
		if len(drain(q)) > 0 {
			t.Errorf("%s: events are reported twice", c.name)
		}
	}
}

func TestDirectoryThatIsRemovedOrMovedIsLost(t *testing.T) {
	q, parent := newQueue(t), t.TempDir()
	removed, moved, kept := filepath.Join(parent, "removed"), filepath.Join(parent, "moved"), filepath.Join(parent, "kept")
	testkit.Must(t, os.Mkdir(removed, 0o755), os.Mkdir(moved, 0o755), os.Mkdir(kept, 0o755))
	ids := []int{watchDir(t, q, removed, Names), watchDir(t, q, moved, Names), watchDir(t, q, kept, Names)}
	testkit.Must(t, os.Remove(removed), os.Rename(moved, moved+".old"))
	lost, ended := map[int]bool{}, map[int]bool{}
	for _, ev := range drain(q) {
		lost[ev.Dir] = lost[ev.Dir] || ev.Lost
		ended[ev.Dir] = ended[ev.Dir] || ev.Ended
	}
	if !lost[ids[0]] || !ended[ids[0]] || !lost[ids[1]] || ended[ids[1]] || lost[ids[2]] {
		t.Errorf("directories %v: lost %v, ended %v", ids, lost, ended)
	}
}

func TestOneDirectoryHasOneID(t *testing.T) {
	q, a, b := newQueue(t), t.TempDir(), t.TempDir()
	id := watchDir(t, q, a, Contents)
	if again := watchDir(t, q, a, Contents); again != id {
		t.Errorf("the same directory has IDs %d and %d", id, again)
	}
	if other := watchDir(t, q, b, Contents); other == id {
		t.Errorf("two directories have ID %d", id)
	}
}

func TestOverflowConcernsAllDirectories(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	testkit.Must(t, err)
	var limit int
	if _, err := fmt.Sscan(string(text), &limit); err != nil || limit > 1<<17 {
		t.Skipf("the queue holds %d events", limit)
	}
	q, dir := newQueue(t), t.TempDir()
	watchDir(t, q, dir, Names)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	testkit.Must(t, os.WriteFile(a, nil, 0o644))
	for range limit/4 + 2 {
		testkit.Must(t, os.Rename(a, b), os.Rename(b, a))
	}
	events := drain(q)
	if last := events[len(events)-1]; last != (Event{Dir: AllDirs, Lost: true}) {
		t.Errorf("the last of %d events is %+v, want an overflow", len(events), last)
	}
	testkit.Must(t, os.Remove(a))
	if len(drain(q)) == 0 {
		t.Error("nothing is reported after an overflow")
	}
}

// A writer that never rests does not hold the caller.
func TestDrainEndsWhileDirectoryChanges(t *testing.T) {
	q, dir := newQueue(t), t.TempDir()
	watchDir(t, q, dir, Names)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.WriteFile(filepath.Join(dir, "x"), nil, 0o644)
				_ = os.Remove(filepath.Join(dir, "x"))
			}
		}
	}()
	for range 100 {
		drain(q)
	}
	close(stop)
	<-done
}

func TestQueueIsUnusableAfterClose(t *testing.T) {
	q, dir := &Queue{}, t.TempDir()
	drain(q) // before the first Add
	q.Remove(1)
	watchDir(t, q, dir, Names)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o644), q.Close(), q.Close())
	if _, err := q.Add(0, Names); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Add: %v, want os.ErrClosed", err)
	}
	if len(drain(q)) > 0 {
		t.Error("a closed queue has events")
	}
	q.Remove(1)
}

func TestRemovedWatchReportsNothing(t *testing.T) {
	q, dir := newQueue(t), t.TempDir()
	id := watchDir(t, q, dir, Names)
	q.Remove(id)
	q.Remove(id)
	drain(q) // the end of the watch
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o644))
	if got := drain(q); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestFileIsNoDirectory(t *testing.T) {
	q := newQueue(t)
	f, err := os.CreateTemp(t.TempDir(), "")
	testkit.Must(t, err)
	defer f.Close()
	if _, err := q.Add(int(f.Fd()), Names); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("got %v, want ENOTDIR", err)
	}
}
