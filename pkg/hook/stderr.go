// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Fail prints an error: see [Stderr]. Podman shows what a runtime printed only when it
// cannot read the runtime's log as one message, and crun's message there says no more
// than that a hook failed; so the hook's own is put in front of it.
func Fail(err error) {
	text := "jackfield-hook: " + err.Error()
	if swallowed() {
		noteInRuntimeLog(os.Getppid(), text)
	}
	fmt.Fprintln(Stderr(), text)
}

// swallowed reports that standard error leads nowhere.
func swallowed() bool {
	var st unix.Stat_t
	return unix.Fstat(2, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// noteInRuntimeLog adds a message to the log that a runtime was started with, where
// that is one of JSON lines: whoever started the runtime looks there for what went
// wrong. Without such a log nothing happens.
func noteInRuntimeLog(pid int, text string) {
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return
	}
	file := jsonLogOf(argsOf(cmdline))
	if file == "" {
		return
	}
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid()) {
		return
	}
	_, _ = unix.Write(fd, logLine(text, time.Now()))
}

// logLine is a message as runtimes write it to a log of JSON lines.
func logLine(text string, now time.Time) []byte {
	line, err := json.Marshal(struct {
		Message string `json:"msg"`
		Level   string `json:"level"`
		Time    string `json:"time"`
	}{text, "error", now.UTC().Format(time.RFC3339)})
	if err != nil {
		return nil // which no string gives
	}
	return append(line, '\n')
}

// argsOf takes /proc/PID/cmdline apart, proc_pid_cmdline(5).
func argsOf(cmdline []byte) []string {
	return strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
}

// jsonLogOf is the file of --log in a runtime's command line, where --log-format is
// json; "" for none. What follows the command is not looked at.
func jsonLogOf(args []string) string {
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

// Stderr is where an error is printed: standard error, or, where a runtime has that
// lead nowhere (crun does), the runtime's own, which is the terminal of whoever
// started the container.
func Stderr() io.Writer {
	if !swallowed() {
		return os.Stderr
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(os.Getppid())+"/fd/2", unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		// A socket, or what is another user's: rootless Podman in a terminal of root's.
		fd, err = parentStderr()
	}
	if err != nil {
		return os.Stderr
	}
	return os.NewFile(uintptr(fd), "the runtime's standard error")
}

// parentStderr is the runtime's own descriptor, when something can be written to it at
// once: unlike one that is opened it may not be made non-blocking.
func parentStderr() (int, error) {
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
