// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/linequeue"
)

// The queue writes the lines as the logger would, in order.
func TestQueuedFormatterWritesLines(t *testing.T) {
	var out bytes.Buffer
	lines := linequeue.New(func(line []byte) { out.Write(line) }, func() { t.Error("a line was dropped") })
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.SetFormatter(&queuedFormatter{lines, &logrus.TextFormatter{DisableTimestamp: true, DisableColors: true}})
	for range 3 {
		log.WithField("requests", []string{"a", "b"}).Info("injected")
		log.WithError(io.EOF).Warn("failed")
	}
	lines.Close()
	want := strings.Repeat("level=info msg=injected requests=\"[a b]\"\nlevel=warning msg=failed error=EOF\n", 3)
	if out.String() != want {
		t.Errorf("got %s", &out)
	}
}
