// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// logger writes lines to a file or to syslog, because runtimes print a hook's output only if it
// fails. A nil logger writes nothing.
type logger struct {
	fd     int
	syslog bool
}

// devLog is the socket of syslog. It receives datagrams in the format of RFC 3164.
const devLog = "/dev/log"

// openLog opens the log: "" for none, "syslog", or a file. Writes never block: a log that nobody reads must not
// delay a container.
func openLog(to string) (*logger, error) {
	switch to {
	case "":
		return nil, nil
	case "syslog":
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, fmt.Errorf("open syslog: %w", err)
		}
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: devLog}); err != nil {
			// A host without syslog must not prevent containers from starting.
			unix.Close(fd)
			return nil, nil
		}
		return &logger{fd: fd, syslog: true}, nil
	}
	fd, err := unix.Open(to, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0o600)
	if err != nil {
		return nil, fmt.Errorf("--log: %w", &os.PathError{Op: "open", Path: to, Err: err})
	}
	return &logger{fd: fd}, nil
}

func (l *logger) close() {
	if l != nil {
		unix.Close(l.fd)
	}
}

// writeLine writes one line. It ignores errors, because a full log must not fail the container.
func (l *logger) writeLine(level string, stage Stage, container, text string) {
	if l == nil {
		return
	}
	line := "level=" + level + " stage=" + string(stage) + " container=" + container + " msg=" + strconv.Quote(text)
	if l.syslog {
		priority := map[string]int{"error": 27, "warning": 28, "info": 30}[level] // facility daemon
		line = fmt.Sprintf("<%d>%s jackfield-hook[%d]: %s", priority, time.Now().Format(time.Stamp), os.Getpid(), line)
	} else {
		line = "time=" + time.Now().UTC().Format(time.RFC3339) + " " + line + "\n"
	}
	// A single write prevents lines of concurrent hooks from interleaving.
	if _, err := unix.Write(l.fd, []byte(line)); errors.Is(err, unix.EMSGSIZE) {
		_, _ = unix.Write(l.fd, []byte(line[:min(len(line), 1024)]))
	}
}
