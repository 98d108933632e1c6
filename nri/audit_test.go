// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// A FIFO with a reader could be opened: the reader would get the audit lines, or stop reading
// them.
func TestAuditFileIsRegular(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "audit.log")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	log := logrus.New()
	log.SetOutput(io.Discard)
	var counters telemetry.Counters
	a := openAudit(host, "/audit.log", &counters, logrus.NewEntry(log))
	defer a.lines.Close()
	if err := a.appendLine([]byte("line\n")); err == nil {
		t.Error("a line was written to a FIFO")
	}
	if err := os.Remove(fifo); err != nil {
		t.Fatal(err)
	}
	if err := a.appendLine([]byte("line\n")); err != nil {
		t.Errorf("the regular file in its place: %v", err)
	}
}

// An unusable file is reported with a sentinel.
func TestErrorOfAuditFileHasSentinel(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	testkit.Must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	reader, err := os.OpenFile(filepath.Join(dir, "fifo"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	testkit.Must(t, err)
	defer reader.Close()
	a := &auditFile{host: host, path: "/fifo"}
	if err := a.openIfNeeded(); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an audit file that is a FIFO: %v", err)
	}
}

// A line of an earlier process that was killed, or that met a full disk, spoils no other line.
func TestAuditLineFollowsPartialLine(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	file := filepath.Join(dir, "audit.log")
	testkit.Must(t, os.WriteFile(file, []byte("whole\npart"), 0o600))
	a := &auditFile{host: host, path: "/audit.log"}
	testkit.Must(t, a.appendLine([]byte("next\n")))
	a.stale.Store(true)
	testkit.Must(t, a.appendLine([]byte("last\n")))
	if got, err := os.ReadFile(file); err != nil || string(got) != "whole\npart\nnext\nlast\n" {
		t.Errorf("%v, the file is %q", err, got)
	}
}
