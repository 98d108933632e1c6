// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/status"
	"github.com/jackfield/jackfield/pkg/telemetry"
)

// auditLine is one line of the audit file: what became of one container.
type auditLine struct {
	Time  string `json:"time"`  // RFC 3339, in UTC
	Event string `json:"event"` // injected, refused or skipped
	Error string `json:"error,omitempty"`
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

func describeEdits(s *edits.Set) []status.Edit {
	var out []status.Edit
	add := func(o edits.Origin, format string, args ...any) {
		out = append(out, status.Edit{What: fmt.Sprintf(format, args...), Request: o.Request, File: o.File, Field: o.Path(), Rule: o.Rule})
	}
	for _, d := range s.Devices {
		add(d.Origin, "device %s", d.Path)
	}
	for _, m := range s.Mounts {
		add(m.Origin, "mount %s from %s", m.Destination, m.Source)
	}
	for _, e := range s.Env {
		add(e.Origin, "env %s", e.Name)
	}
	for _, h := range s.Hooks {
		add(h.Origin, "hook %s %s", h.Stage, h.Path)
	}
	for _, d := range s.NetDevices {
		add(d.Origin, "net device %s as %s", d.HostName, d.Name)
	}
	for _, g := range s.GIDs {
		add(g.Origin, "group %d", g.ID)
	}
	if s.RDT != nil {
		add(s.RDT.Origin, "intelRdt %s", s.RDT.ClosID)
	}
	return out
}

// encode is the line with its newline, within the limit.
func (a *auditLine) encode() []byte {
	data, err := json.Marshal(a)
	if err == nil && len(data) > maxAuditLine {
		short := *a
		short.More = fmt.Sprintf("%d requests and %d edits: the line would have had %d bytes", len(a.Requests), len(a.Edits), len(data))
		short.Requests, short.Edits = nil, nil
		short.Error = cut(a.Error, maxAuditLine/8)
		data, err = json.Marshal(&short)
	}
	if err != nil {
		// The types above cannot fail to be encoded; the line must not be lost silently.
		data = fmt.Appendf(nil, `{"time":%q,"event":%q,"containerID":%q,"more":%q}`, a.Time, a.Event, a.ContainerID, err)
	}
	return append(data, '\n')
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// auditFile is where the lines go. Its methods but put and reopen are its own
// goroutine's.
type auditFile struct {
	host     hostfs.Root
	path     string
	counters *telemetry.Counters
	log      *logrus.Entry
	lines    *lines

	again   atomic.Bool // the file is to be opened anew
	failing atomic.Bool
	f       *os.File
	torn    bool // the last line was not written whole
}

func openAudit(host hostfs.Root, path string, counters *telemetry.Counters, log *logrus.Entry) *auditFile {
	a := &auditFile{host: host, path: path, counters: counters, log: log.WithField("file", path)}
	a.lines = newLines(&counters.AuditDropped, a.write)
	return a
}

func (a *auditFile) put(line *auditLine) { a.lines.put(line.encode()) }

// reopen has the file opened anew before the next line, for a program that rotates
// logs and says so. One that was renamed is noticed without.
func (a *auditFile) reopen() { a.again.Store(true) }

func (a *auditFile) close() { a.lines.close() }

func (a *auditFile) write(line []byte) {
	err := a.append(line)
	switch was := a.failing.Swap(err != nil); {
	case err != nil:
		a.counters.AuditFailed.Add()
		if !was {
			a.log.WithError(err).Error("the audit file cannot be written; lines are lost until it can")
		}
	case was:
		a.log.Warn("the audit file can be written again")
		fallthrough
	default:
		a.counters.AuditLines.Add()
	}
}

func (a *auditFile) append(line []byte) error {
	if err := a.ready(); err != nil {
		return err
	}
	if a.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := a.f.Write(line)
	if n > 0 {
		a.torn = line[n-1] != '\n'
	}
	return err
}

// ready opens the file where it is not open, was moved away, or is to be opened
// anew.
func (a *auditFile) ready() error {
	path := a.host.Path(a.path)
	if a.f != nil {
		var open, there unix.Stat_t
		same := unix.Fstat(int(a.f.Fd()), &open) == nil && unix.Lstat(path, &there) == nil && open.Dev == there.Dev && open.Ino == there.Ino
		if same && !a.again.Load() {
			return nil
		}
		a.f.Close()
		a.f, a.torn = nil, false
	}
	a.again.Store(false)
	// A FIFO without a reader is an error rather than a wait, and nothing but a
	// regular file is written to.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("audit.file: found a %s at %s, want a regular file: %w", st.Mode().Type(), a.path, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		f.Close()
		return err
	}
	a.f = f
	return nil
}
