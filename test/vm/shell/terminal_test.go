// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/vm"
)

// terminal is the user's side of a terminal.
type terminal struct {
	*os.File
	mu    sync.Mutex
	text  strings.Builder
	ended chan struct{}
}

// startOnTerminal starts a command on a terminal of its own.
func startOnTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	// Close ends a Read only if the descriptor never blocks.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	user := os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer side.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = side, side, side
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	term := &terminal{File: user, ended: make(chan struct{})}
	go func() {
		defer close(term.ended)
		for buf := make([]byte, 4096); ; {
			n, err := user.Read(buf) // EIO after the last process has closed the other side
			term.mu.Lock()
			term.text.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return term
}

func (term *terminal) shown() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text.String()
}

// wait waits until the terminal shows a text that matches a regular expression.
func (term *terminal) wait(t *testing.T, text string) {
	t.Helper()
	for expr := regexp.MustCompile(text); !expr.MatchString(term.shown()); {
		select {
		case <-term.ended:
			if !expr.MatchString(term.shown()) {
				t.Fatalf("%s is missing in: %s", text, term.shown())
			}
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// make vm says on a terminal how to end it. After that line is typed, it ends with status 0 and leaves no file and no
// process, and the terminal has its modes again.
func TestMakeVMEndsOnTerminal(t *testing.T) {
	vm.RequireStart(t)
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", "../../..", "vm")
	term := startOnTerminal(t, cmd)
	before, err := unix.IoctlGetTermios(int(term.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	term.wait(t, `"exit" or Ctrl-D ends the machine`)
	share := shareOf(t, cmd.Process.Pid)
	if _, err := os.Stat(share); err != nil {
		t.Fatal(err)
	}
	// The status of the last command is not that of make vm. A command in the pod reads what is typed until it ends.
	for _, line := range []string{"pod env; false", "exit"} {
		if _, err := term.WriteString(line + "\n"); err != nil {
			t.Fatal(err)
		}
		if line != "exit" {
			term.wait(t, `(?s)JACKFIELD_NET1_EAL=-a 0000:01:10\.0.*vm:~# `)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, term.shown())
	}
	after, err := unix.IoctlGetTermios(int(term.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if *after != *before {
		t.Errorf("the terminal has the modes %+v, and had %+v", after, before)
	}
	// Every process of the terminal has ended, QEMU among them.
	<-term.ended
	term.wait(t, "The machine is gone")
	if _, err := os.Stat(share); !os.IsNotExist(err) {
		t.Errorf("the directory of the machine is left: %v", err)
	}
}

// make vm ends when its terminal vanishes, as when a connection of SSH breaks, and leaves no file and no process.
func TestMakeVMEndsWithTerminal(t *testing.T) {
	vm.RequireStart(t)
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", "../../..", "vm")
	term := startOnTerminal(t, cmd)
	term.wait(t, "the machine has booted")
	share := shareOf(t, cmd.Process.Pid)
	if err := term.Close(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("make vm ended with %v, and must fail", err)
	}
	if _, err := os.Stat(share); !os.IsNotExist(err) {
		t.Errorf("the directory of the machine is left: %v", err)
	}
	if left := commandsOf(t, cmd.Process.Pid); len(left) > 0 {
		t.Errorf("processes of the terminal are left: %q", left)
	}
}

// shareOf returns the directory that the machine of a session shares with the host.
func shareOf(t *testing.T, session int) string {
	t.Helper()
	for _, command := range commandsOf(t, session) {
		for argument := range strings.SplitSeq(command, "\x00") {
			if _, dir, ok := strings.Cut(argument, "id=share,path="); ok {
				dir, _, _ = strings.Cut(dir, ",")
				return dir
			}
		}
	}
	t.Fatal("the session has no QEMU")
	return ""
}

// commandsOf returns the command lines of a session's processes. Their arguments end with null bytes.
func commandsOf(t *testing.T, session int) (commands []string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			t.Fatal(err)
		}
		if id, err := unix.Getsid(pid); err != nil || id != session {
			continue // or the process has ended
		}
		if command, err := os.ReadFile(process + "/cmdline"); err == nil && len(command) > 0 {
			commands = append(commands, string(command))
		}
	}
	return commands
}
