// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// cdiFloor is what a lookup cannot do without, done as plainly as can be and good
// for these directories only: one look at the directory, one at the queue of
// announcements, and of a file that was announced, reading, decoding and
// validating it. It keeps the names of files, and nothing of what is in them.
func cdiFloor(tb testing.TB, dir string) cdiCache {
	f := &floor{tb: tb, dir: dir, known: map[string]bool{}, buf: make([]byte, 16<<10)}
	var err error
	if f.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		tb.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(f.fd, dir, unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		tb.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, n := range names {
		f.known[n.Name()] = true
	}
	return cdiCache{has: f.has, close: func() { unix.Close(f.fd) }}
}

type floor struct {
	tb        testing.TB
	dir       string
	fd        int
	known     map[string]bool
	buf       []byte
	validator cdiregistry.Validator
}

func (f *floor) has(device string) bool {
	var st unix.Stat_t
	if err := unix.Stat(f.dir, &st); err != nil {
		f.tb.Fatal(err)
	}
	for {
		n, err := unix.Read(f.fd, f.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			break
		}
		for b := f.buf[:n]; len(b) > 0; {
			size := binary.NativeEndian.Uint32(b[12:])
			f.changed(strings.TrimRight(string(b[unix.SizeofInotifyEvent:][:size]), "\x00"), binary.NativeEndian.Uint32(b[4:])&unix.IN_DELETE != 0)
			b = b[unix.SizeofInotifyEvent+size:]
		}
	}
	// The claim's number is in both names.
	_, name, _ := strings.Cut(device, "=")
	claim, _, _ := strings.Cut(name, "-dev-")
	return f.known["vendor.example.com-accelerator_"+claim+".json"]
}

func (f *floor) changed(name string, gone bool) {
	if gone {
		delete(f.known, name)
		return
	}
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		return // gone again
	}
	if d := f.validator.Validate(text); len(d) > 0 {
		f.tb.Fatal(d)
	}
	f.known[name] = true
}
