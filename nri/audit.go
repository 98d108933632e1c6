// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/linequeue"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// auditLog writes the outcome of each container to the audit file of the configuration. Without a file it
// writes nothing. No caller waits for the file.
type auditLog struct {
	*daemon
	file atomic.Pointer[auditFile]
}

// followConfig opens the audit file of the configuration. Only one call runs at a time.
func (a *auditLog) followConfig(cfg *config.Config) {
	old, path := a.file.Load(), ""
	if old != nil {
		path = old.path
	}
	if path == cfg.AuditLog.File {
		return
	}
	var file *auditFile
	if cfg.AuditLog.File != "" {
		file = openAudit(a.host, cfg.AuditLog.File, a.counters, a.log)
	}
	a.file.Store(file)
	if old != nil {
		go old.lines.Close()
	}
}

// write adds a line to the audit file. repeats is how often the container was refused for the same reason
// since the last line.
func (a *auditLog) write(event string, err error, record status.Container, repeats int) {
	file := a.file.Load()
	if file == nil {
		return
	}
	line := &auditLine{Time: record.Since.Format(time.RFC3339Nano), Event: event, Repeats: repeats, Container: record}
	if err != nil {
		line.Error = diag.ErrorText(err)
	}
	// The runtime waits for the caller, so the line is encoded later (BenchmarkNRICreateContainer).
	file.lines.AddEncoder(line.sizeHint(), line.encodeLine)
}

// failingFile returns the path of an audit file that cannot be written, or "".
func (a *auditLog) failingFile() string {
	if file := a.file.Load(); file != nil && file.failing.Load() {
		return file.path
	}
	return ""
}

func (a *auditLog) close() {
	if file := a.file.Swap(nil); file != nil {
		file.lines.Close()
	}
}

// auditLine is one line of the audit file: the outcome of one container.
type auditLine struct {
	Time  string `json:"time"`  // RFC 3339, in UTC
	Event string `json:"event"` // injected, refused, skipped or reused
	Error string `json:"error,omitempty"`
	// Repeats is how often the container was refused for the same reason since the last line; 0 for the first.
	Repeats int `json:"repeats,omitempty"`
	status.Container
}

// The events.
const (
	eventInjected = "injected"
	eventRefused  = "refused"
	eventSkipped  = "skipped"
	eventReused   = "reused" // a device number of the container leads to another device
)

// maxAuditLine bounds a line, in bytes.
const maxAuditLine = 128 << 10

// encodeLine returns the line with its newline, within the limit. Its types always have a JSON form.
func (a *auditLine) encodeLine() []byte {
	data, _ := json.Marshal(a)
	if len(data) > maxAuditLine {
		short := *a
		short.More = fmt.Sprintf("%d requests and %d edits: the line would have had %d bytes",
			len(a.Requests), len(a.Edits), len(data))
		short.Requests, short.Edits = nil, nil
		short.Error = a.Error[:min(len(a.Error), maxAuditLine/8)]
		data, _ = json.Marshal(&short)
	}
	return append(data, '\n')
}

// sizeHint is about the length of the line, in bytes.
func (a *auditLine) sizeHint() int {
	return min(512*(1+len(a.Requests)+len(a.Edits)), maxAuditLine)
}

// auditFile is the open audit file. Its methods run on the goroutine of lines.
type auditFile struct {
	host     hostfs.Root
	path     string
	counters *telemetry.Counters
	log      *logrus.Entry
	lines    *linequeue.Queue

	stale   atomic.Bool // reopen the file before the next line
	failing atomic.Bool
	f       *os.File
	partial bool // the last line was not written whole
}

func openAudit(host hostfs.Root, path string, counters *telemetry.Counters, log *logrus.Entry) *auditFile {
	a := &auditFile{host: host, path: path, counters: counters, log: log.WithField("file", path)}
	a.lines = linequeue.New(a.writeLine, func() { counters.AuditDropped.Add(1) })
	return a
}

// writeLine writes one line. Only the first of several failures is logged, because a full disk fails every line.
func (a *auditFile) writeLine(line []byte) {
	err := a.appendLine(line)
	failedBefore := a.failing.Swap(err != nil)
	if err != nil {
		a.counters.AuditFailed.Add(1)
		if !failedBefore {
			a.log.WithError(err).Error("the audit file cannot be written; lines are lost until it can be")
		}
		return
	}
	if failedBefore {
		a.log.Warn("the audit file can be written again")
	}
	a.counters.AuditLines.Add(1)
}

// appendLine appends a line to the open file. After a partial write, the next line begins on a new line, so that a
// reader loses one line and not two.
func (a *auditFile) appendLine(line []byte) error {
	if err := a.openIfNeeded(); err != nil {
		return err
	}
	if a.partial {
		line = append([]byte{'\n'}, line...)
	}
	n, err := a.f.Write(line)
	if n > 0 {
		a.partial = line[n-1] != '\n'
	}
	return err
}

// openIfNeeded opens the file if it is not open, was renamed, or is stale.
func (a *auditFile) openIfNeeded() error {
	path := a.host.Path(a.path)
	if a.f != nil {
		var open, there unix.Stat_t
		same := unix.Fstat(int(a.f.Fd()), &open) == nil && unix.Lstat(path, &there) == nil &&
			open.Dev == there.Dev && open.Ino == there.Ino
		if same && !a.stale.Load() {
			return nil
		}
		a.f.Close()
		a.f = nil
	}
	a.stale.Store(false)
	// O_NONBLOCK turns a FIFO without a reader into an error instead of a wait. Only a regular file is written.
	const flags = os.O_WRONLY | os.O_APPEND | os.O_CREATE | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_NOCTTY
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("audit.file: found a %s at %s: must be a regular file: %w",
			st.Mode().Type(), a.path, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		f.Close()
		return err
	}
	a.f, a.partial = f, endsInPartialLine(f, st.Size())
	return nil
}

// endsInPartialLine reports whether the last line of a file is incomplete, because the disk was full or an
// earlier process was killed. A file that cannot be read counts as complete.
func endsInPartialLine(f *os.File, size int64) bool {
	if size == 0 {
		return false
	}
	in, err := os.Open(hostfs.DescriptorPath(int(f.Fd())))
	if err != nil {
		return false
	}
	defer in.Close()
	var last [1]byte
	n, _ := in.ReadAt(last[:], size-1)
	return n == 1 && last[0] != '\n'
}
