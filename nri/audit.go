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
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// writeAudit adds a line to the audit file. repeats is how often the same refusal came since its last line.
func (p *Plugin) writeAudit(event string, err error, record status.Container, repeats int) {
	file := p.servers.audit.Load()
	if file == nil {
		return
	}
	line := &auditLine{Time: record.Since.Format(time.RFC3339Nano), Event: event, Repeats: repeats, Container: record}
	if err != nil {
		line.Error = diag.ErrorText(err)
	}
	file.lines.Add(line.encodeLine())
}

// auditLine is one line of the audit file: the outcome of one container.
type auditLine struct {
	Time  string `json:"time"`  // RFC 3339, in UTC
	Event string `json:"event"` // injected, refused or skipped
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
)

// maxAuditLine bounds a line, in bytes.
const maxAuditLine = 128 << 10

// encodeLine returns the line with its newline, within the limit. Its types always have a JSON form.
func (a *auditLine) encodeLine() []byte {
	data, _ := json.Marshal(a)
	if len(data) > maxAuditLine {
		short := *a
		short.More = fmt.Sprintf("%d requests and %d edits: the line would have had %d bytes", len(a.Requests), len(a.Edits), len(data))
		short.Requests, short.Edits = nil, nil
		short.Error = a.Error[:min(len(a.Error), maxAuditLine/8)]
		data, _ = json.Marshal(&short)
	}
	return append(data, '\n')
}

// auditFile is the file that the lines are appended to. Its methods run on the goroutine of lines.
type auditFile struct {
	host     hostfs.Root
	path     string
	counters *telemetry.Counters
	log      *logrus.Entry
	lines    *linequeue.Queue

	stale   atomic.Bool // the file is to be reopened
	failing atomic.Bool
	f       *os.File
	partial bool // the last line was not written whole
}

func openAudit(host hostfs.Root, path string, counters *telemetry.Counters, log *logrus.Entry) *auditFile {
	a := &auditFile{host: host, path: path, counters: counters, log: log.WithField("file", path)}
	a.lines = linequeue.New(a.writeLine, func() { counters.AuditDropped.Add(1) })
	return a
}

func (a *auditFile) writeLine(line []byte) {
	err := a.appendLine(line)
	switch was := a.failing.Swap(err != nil); {
	case err != nil:
		a.counters.AuditFailed.Add(1)
		if !was {
			a.log.WithError(err).Error("the audit file cannot be written; lines are lost until it can be")
		}
	case was:
		a.log.Warn("the audit file can be written again")
		fallthrough
	default:
		a.counters.AuditLines.Add(1)
	}
}

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

// openIfNeeded opens the file where it is not open, was renamed, or is to be reopened.
func (a *auditFile) openIfNeeded() error {
	path := a.host.Path(a.path)
	if a.f != nil {
		var open, there unix.Stat_t
		same := unix.Fstat(int(a.f.Fd()), &open) == nil && unix.Lstat(path, &there) == nil && open.Dev == there.Dev && open.Ino == there.Ino
		if same && !a.stale.Load() {
			return nil
		}
		a.f.Close()
		a.f = nil
	}
	a.stale.Store(false)
	// A FIFO without a reader is an error rather than a wait, and nothing but a
	// regular file is written to.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("audit.file: found a %s at %s: must be a regular file: %w", st.Mode().Type(), a.path, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		f.Close()
		return err
	}
	a.f, a.partial = f, endsInPartialLine(f, st.Size())
	return nil
}

// endsInPartialLine reports whether the last line of a file is not whole: the disk was full, or an earlier
// process was killed. A file that cannot be read counts as whole.
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
