// SPDX-License-Identifier: Apache-2.0

package policyeval

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/status"
)

// AuditLog collects the requests of containers from audit logs.
type AuditLog struct {
	After     time.Time // lines of this time and later are read
	Namespace string    // only this one, "" for all

	Asked      []policy.Suggestion
	Broken     int // lines that are no lines of an audit log
	Incomplete int // containers of which the log left something out
}

// maxLogLine bounds a line of the audit log. jackfield-nri writes shorter ones.
const maxLogLine = 1 << 20

// ReadFile adds the requests in a file of the caller; "-" is standard input.
func (l *AuditLog) ReadFile(file string, stdin io.Reader) error {
	if file == "-" {
		return l.Read(stdin)
	}
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not block
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("it is no regular file: %w", errdefs.ErrInvalidArgument))
	}
	return l.Read(f)
}

// Read adds the requests in an audit log.
func (l *AuditLog) Read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		var line struct {
			Time time.Time `json:"time"`
			status.Container
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Time.IsZero() {
			l.Broken++
			continue
		}
		if line.Time.Before(l.After) || l.Namespace != "" && line.Namespace != l.Namespace {
			continue
		}
		incomplete := line.More != ""
		for i := range line.Requests {
			for _, asked := range line.Requests[i].Asked {
				l.Asked = append(l.Asked, policy.Suggestion{Namespace: line.Namespace, Asked: asked})
			}
			incomplete = incomplete || len(line.Requests[i].Asked) >= engine.MaxAsked
		}
		if incomplete {
			l.Incomplete++
		}
	}
	return lines.Err()
}
