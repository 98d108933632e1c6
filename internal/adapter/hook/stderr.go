// SPDX-License-Identifier: Apache-2.0

// crun starts hooks with /dev/null as standard error, so the reason of a failure would be lost. In
// that case this file writes to the log of the parent runtime's --log flag, and to the parent
// runtime's file descriptor 2.

package hook

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// PrintError prints an error. If standard error is /dev/null, it also appends the error to the
// runtime's log, which Podman shows, and prints it to the runtime's standard error, which is the
// user's terminal.
func PrintError(err error) {
	text, stderr := "jackfield-hook: "+diag.ErrorText(err), os.Stderr
	if stderrIsNull() {
		appendToRuntimeLog(os.Getppid(), text)
		stderr = openRuntimeStderr()
	}
	fmt.Fprintln(stderr, text)
}

// stderrIsNull reports whether standard error is /dev/null.
func stderrIsNull() bool {
	var st unix.Stat_t
	return unix.Fstat(2, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// appendToRuntimeLog appends a message to the JSON log of a runtime, if the runtime has one and
// this user owns the file.
func appendToRuntimeLog(pid int, text string) {
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return
	}
	file := jsonLogFile(splitCmdline(cmdline))
	if file == "" {
		return
	}
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|
		unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid()) {
		return
	}
	_, _ = unix.Write(fd, formatLogLine(text, time.Now()))
}

// formatLogLine formats a message like a runtime's JSON log.
func formatLogLine(text string, now time.Time) []byte {
	// Marshal of strings cannot fail.
	line, _ := json.Marshal(map[string]string{"level": "error", "msg": text, "time": now.UTC().Format(time.RFC3339)})
	return append(line, '\n')
}

// splitCmdline splits /proc/PID/cmdline, proc_pid_cmdline(5).
func splitCmdline(cmdline []byte) []string {
	return strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
}

// jsonLogFile returns the file of --log in a runtime's command line if --log-format is json,
// otherwise "". It stops at the runtime's command.
func jsonLogFile(args []string) string {
	file, format := "", ""
	for i := 1; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		switch name {
		case "--log", "--log-format":
			if !joined {
				if i++; i == len(args) {
					return ""
				}
				value = args[i]
			}
			if name == "--log" {
				file = value
			} else {
				format = value
			}
		case "create", "run", "start":
			i = len(args)
		}
	}
	if format != "json" || !path.IsAbs(file) {
		return ""
	}
	return file
}

// openRuntimeStderr opens the runtime's standard error. If that fails, it returns the hook's own.
//
// A regular file is shared with the runtime by duplicating its descriptor, because the runtime's
// own offset would overwrite text that another descriptor appends. Any other type of file is opened
// again, so that it can be non-blocking.
func openRuntimeStderr() *os.File {
	name := "/proc/" + strconv.Itoa(os.Getppid()) + "/fd/2"
	open := func() (int, error) {
		return unix.Open(name, unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	// some files cannot be opened: a socket, or root's terminal under rootless Podman
	first, second := open, dupParentStderr
	var st unix.Stat_t
	if unix.Stat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		first, second = dupParentStderr, open
	}
	fd, err := first()
	if err != nil {
		fd, err = second()
	}
	if err != nil {
		return os.Stderr
	}
	return os.NewFile(uintptr(fd), "the runtime's standard error")
}

// dupParentStderr duplicates the runtime's file descriptor 2. The runtime shares it, so it cannot
// become non-blocking. dupParentStderr therefore fails unless the descriptor is ready for writing.
func dupParentStderr() (int, error) {
	parent, err := unix.PidfdOpen(os.Getppid(), 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	fd, err := unix.PidfdGetfd(parent, 2, 0)
	if err != nil {
		return -1, err
	}
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(ready, 0); err != nil || n != 1 || ready[0].Revents&unix.POLLOUT == 0 {
		unix.Close(fd)
		return -1, unix.EAGAIN
	}
	return fd, nil
}
