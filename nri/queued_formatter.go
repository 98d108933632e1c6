// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/linequeue"
)

// queuedFormatter formats the lines of a log behind the queue that writes them, so that no handler waits for it.
type queuedFormatter struct {
	lines  *linequeue.Queue
	format logrus.Formatter
}

// Format queues the entry. It returns no text for the logger to write.
func (f *queuedFormatter) Format(e *logrus.Entry) ([]byte, error) {
	later := *e
	later.Buffer = nil // the logger reuses it
	f.lines.AddEncoder(entrySize(e), func() []byte {
		line, err := f.format.Format(&later)
		if err != nil {
			return []byte("cannot format a line of the log: " + err.Error() + "\n")
		}
		return line
	})
	return nil, nil
}

// entrySize returns about the length of the entry's line in bytes.
func entrySize(e *logrus.Entry) int {
	size := 256 + len(e.Message)
	for _, value := range e.Data {
		switch v := value.(type) {
		case string:
			size += len(v)
		case error:
			size += len(v.Error())
		case []string:
			for _, s := range v {
				size += len(s)
			}
		}
	}
	return size
}
