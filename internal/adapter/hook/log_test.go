// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/outcome"

	"golang.org/x/sys/unix"
)

// A datagram to syslog has priority, time, program and process (RFC 3164, section 4.1). A long text
// is cut to one datagram.
func TestSyslogDatagramFollowsRFC3164(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := &logger{fd: pair[0], syslog: true}
	t.Cleanup(func() { l.close(); unix.Close(pair[1]) })
	for level, priority := range map[string]string{"error": "27", "warning": "28", "info": "30"} {
		l.writeLine(level, Prestart, "c1", "two\nlines")
		buf := make([]byte, 1024)
		n, err := unix.Read(pair[1], buf)
		want := regexp.MustCompile(`^<` + priority + `>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d jackfield-hook\[\d+\]: level=` + level + ` stage=prestart container=c1 msg="two\\nlines"$`)
		if err != nil || !want.Match(buf[:n]) {
			t.Errorf("%s: %q, %v", level, buf[:n], err)
		}
	}
	l.writeLine("error", Prestart, "c1", strings.Repeat("x", 1<<20))
	buf := make([]byte, 2048)
	if n, err := unix.Read(pair[1], buf); err != nil || n != 1024 {
		t.Errorf("long text: %d bytes, %v", n, err)
	}
}

// A log file has mode 0600, is appended to, and is not reached through a symlink.
func TestLogFileIsAppendedAndNoSymlink(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for range 2 {
		l, err := openLog(file)
		if err != nil {
			t.Fatal(err)
		}
		l.writeLine("info", Precreate, "c1", "text")
		l.close()
	}
	data, err := os.ReadFile(file)
	fi, err2 := os.Stat(file)
	if err != nil || err2 != nil || strings.Count(string(data), `level=info stage=precreate container=c1 msg="text"`+"\n") != 2 || fi.Mode() != 0o600 {
		t.Errorf("%q, %v, %v, %v", data, fi, err, err2)
	}
	if err := os.Symlink(file, file+"2"); err != nil {
		t.Fatal(err)
	}
	if _, err := openLog(file + "2"); err == nil {
		t.Error("openLog follows a symlink")
	}
}

// The log has one line each for the first requests of a container, and one for all others.
func TestLogBoundsLinesPerContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hook.log")
	log, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	plan := &engine.Plan{}
	for i := range 1000 {
		plan.Items = append(plan.Items, engine.Item{Request: fmt.Sprintf("request %d.", i), Outcome: engine.Skipped, Reason: "not found", Audit: "refused"})
	}
	(&hook{log: log, stage: "precreate", name: "c"}).report(plan)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n, text := strings.Count(string(data), "\n"), string(data); n != outcome.MaxLines+1 || !strings.Contains(text, "and 1984 more lines") {
		t.Errorf("%d lines, want %d and one for the others: %s", n, outcome.MaxLines, text)
	}
}
