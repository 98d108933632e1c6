// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// TestSnapshotIsRightAfterEachStep makes random changes, and compares the registry after each with a new registry.
func TestSnapshotIsRightAfterEachStep(t *testing.T) {
	rounds, steps := 8, 250
	if testing.Short() {
		rounds = 2
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			for seed := range rounds {
				e := newEnv(t, m)
				s := stepper{env: e, rnd: rand.New(rand.NewPCG(uint64(seed), 3))}
				for _, dir := range []string{"/out", "/alt"} {
					e.must(os.Mkdir(e.top+dir, 0o755))
					e.renameIntoPlace(dir+"/a.json", s.nextSpec())
				}
				var done []string
				for range steps {
					done = append(done, s.changeOnce())
					if diff := cmp.Diff(snapshotText(newCache(t, e, cdi.Options{DisableWatch: true}).Snapshot()), snapshotText(e.r.Snapshot())); diff != "" {
						t.Fatalf("seed %d, after %q (-fresh +registry):\n%s", seed, done[max(0, len(done)-12):], diff)
					}
				}
			}
		})
	}
}

// snapshotText returns the content of a snapshot as text.
func snapshotText(s *cdi.Snapshot) []string {
	out := fileTexts(s)
	for _, name := range s.Devices() {
		d, err := s.Device(name)
		if err != nil {
			return append(out, fmt.Sprintf("%s is listed: %v", name, err))
		}
		out = append(out, fmt.Sprintf("%s %s %q", d.Name, d.File, d.Edits.Env))
	}
	for _, d := range s.Dirs() {
		out = append(out, fmt.Sprintf("%s %v %v", d.Path, d.Missing, d.Err))
	}
	return out
}

// stepper makes random changes to the directories of an env.
type stepper struct {
	*env
	rnd *rand.Rand
	n   int
}

func (s *stepper) nextSpec() string {
	s.n++
	device := fmt.Sprint("d", s.rnd.IntN(5))
	return specText(fmt.Sprintf("%06d", s.n), device, device+"x")
}

// pickFile returns one of a few paths inside and outside of the spec directories.
func (s *stepper) pickFile() string {
	dir := []string{"/etc/cdi", "/etc/cdi", "/run/cdi", "/run/cdi", "/out", "/alt"}[s.rnd.IntN(6)]
	return dir + "/" + []string{"a.json", "b.json", "c.yaml", "d.txt"}[s.rnd.IntN(4)]
}

// changeOnce makes one random change and describes it. It returns "nothing" if the change is impossible.
func (s *stepper) changeOnce() string {
	file, other := s.pickFile(), s.pickFile()
	at, to := s.top+file, s.top+other
	regular := func(name string) bool {
		st, err := os.Stat(name)
		return err == nil && st.Mode().IsRegular()
	}
	switch k := s.rnd.IntN(20); k {
	case 0, 1, 2:
		tmp := filepath.Dir(at) + "/.tmp"
		_ = os.WriteFile(tmp, []byte(s.nextSpec()), 0o644)
		return fmt.Sprint("rename into place ", file, os.Rename(tmp, at))
	case 3, 4:
		if !regular(at) {
			return "nothing"
		}
		return fmt.Sprint("write ", file, os.WriteFile(at, []byte(s.nextSpec()), 0o644))
	case 5:
		f, err := os.OpenFile(at, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return "nothing"
		}
		defer f.Close()
		_, err = f.WriteAt([]byte(s.nextSpec()), 0)
		return fmt.Sprint("write over ", file, err)
	case 6:
		if !regular(at) {
			return "nothing"
		}
		return fmt.Sprint("truncate ", file, os.Truncate(at, int64(s.rnd.IntN(100))))
	case 7, 8:
		return fmt.Sprint("remove ", file, os.Remove(at))
	case 9, 10:
		return fmt.Sprint("rename ", file, other, os.Rename(at, to))
	case 11:
		target, err := filepath.Rel(filepath.Dir(at), to)
		s.must(err)
		return fmt.Sprint("symlink ", file, other, os.Symlink(target, at))
	case 12:
		return fmt.Sprint("chmod ", file, os.Chmod(at, []os.FileMode{0o644, 0o644, 0o664, 0o600}[s.rnd.IntN(4)]))
	case 13:
		// Same size and modification time as before: only the change time differs.
		st, err := os.Lstat(at)
		if err != nil || !st.Mode().IsRegular() {
			return "nothing"
		}
		err = os.WriteFile(at, []byte(s.nextSpec()), 0o644)
		return fmt.Sprint("write and restore mtime of ", file, errors.Join(err, os.Chtimes(at, time.Time{}, st.ModTime())))
	case 14:
		return fmt.Sprint("mkdir ", file, os.Mkdir(at, 0o755))
	case 15:
		return fmt.Sprint("fifo ", file, unix.Mkfifo(at, 0o644))
	case 16:
		dir := filepath.Dir(file)
		return fmt.Sprint("chmod ", dir, os.Chmod(s.top+dir, []os.FileMode{0o755, 0o755, 0o777}[s.rnd.IntN(3)]))
	case 17:
		return s.changeDirectory()
	case 18:
		owner := 65534 * s.rnd.IntN(2)
		if os.Geteuid() != 0 {
			return "nothing"
		}
		return fmt.Sprint("chown ", file, owner, os.Lchown(at, owner, 0))
	default:
		if !regular(at) {
			return "nothing"
		}
		return fmt.Sprint("touch ", file, os.Chtimes(at, time.Now(), time.Now()))
	}
}

// changeDirectory moves, exchanges or replaces a spec directory or its parent.
func (s *stepper) changeDirectory() string {
	at := s.top + []string{"/etc/cdi", "/run/cdi", "/etc", "/run"}[s.rnd.IntN(4)]
	away := at + "-away"
	name := at[len(s.top):]
	switch s.rnd.IntN(5) {
	case 0:
		if err := os.Rename(at, away); err != nil {
			return "nothing"
		}
		return "remove " + name
	case 1, 2:
		_ = unix.Rename(away, at)
		return fmt.Sprint("move back ", name)
	case 3:
		if err := unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, s.top+"/alt", unix.RENAME_EXCHANGE); err != nil {
			return "nothing"
		}
		return "exchange " + name
	default:
		if err := os.Symlink(map[bool]string{true: "../alt", false: "alt"}[len(name) > 4], at); err != nil {
			return "nothing"
		}
		return "symlink " + name
	}
}
