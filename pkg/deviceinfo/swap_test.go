// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that is replaced by a pipe between check and open is not read.
func TestSwappedForAPipeIsNotRead(t *testing.T) {
	dir := t.TempDir()
	const content = `{"type":"pci"}`
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "b")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.WriteString("from the pipe"); err != nil {
		t.Fatal(err)
	}
	at, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	d := &directory{at, dir}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(d.fd(), "a", d.fd(), "b", unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for range 20_000 {
		data, err := d.readFile("a")
		if err == nil && string(data) != content || errors.Is(err, unix.EAGAIN) {
			t.Fatalf("the pipe was read: %q, %v", data, err)
		}
	}
}
