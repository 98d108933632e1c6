// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cli"
)

var update = flag.Bool("update", false, "write the output of the commands into the scripts")

func TestMain(m *testing.M) {
	// Files of the scripts have the modes of a node's files, whoever runs them.
	unix.Umask(0o022)
	testscript.Main(m, map[string]func(){"jackfield": jackfield})
}

// jackfield is cmd/jackfield.
func jackfield() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(cli.Run(ctx, os.Args[1:], cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}))
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Values[testKey{}] = env.T()
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mknod": mknod, "mkfifo": mkfifo, "mksock": mksock, "leavesock": leavesock, "answer": answer, "ordinary": ordinary, "aged": aged, "status": status, "root": root,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
	})
}

// testKey finds the test among the values of a script.
type testKey struct{}

// skip ends a script because the environment lacks something. CI has promised
// everything, so there it is a failure.
func skip(ts *testscript.TestScript, format string, args ...any) {
	if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
		ts.Fatalf(format, args...)
	}
	ts.Value(testKey{}).(testscript.T).Skip(fmt.Sprintf(format, args...))
}

// root ends a script that wants the rights of root: root WHY...
func root(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: root WHY...")
	}
	if os.Geteuid() != 0 {
		skip(ts, "%s", strings.Join(args, " "))
	}
}

// mknod makes a device node: mknod FILE c|b MAJOR MINOR.
func mknod(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: mknod FILE c|b MAJOR MINOR")
	}
	types := map[string]uint32{"c": unix.S_IFCHR, "b": unix.S_IFBLK}
	major, err1 := strconv.ParseUint(args[2], 10, 32)
	minor, err2 := strconv.ParseUint(args[3], 10, 32)
	if err := errors.Join(err1, err2); err != nil || types[args[1]] == 0 {
		ts.Fatalf("mknod: bad type or number: %v", err)
	}
	file := parent(ts, args[0])
	err := unix.Mknod(file, types[args[1]]|0o666, int(unix.Mkdev(uint32(major), uint32(minor))))
	if errors.Is(err, unix.EPERM) {
		skip(ts, "mknod %s: %v; a device node wants CAP_MKNOD", args[0], err)
	}
	ts.Check(err)
	ts.Check(os.Chmod(file, 0o666))
}

// mkfifo makes FIFOs: mkfifo FILE...
func mkfifo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: mkfifo FILE...")
	}
	for _, a := range args {
		ts.Check(unix.Mkfifo(parent(ts, a), 0o644))
	}
}

// mksock makes sockets that listen: mksock FILE...
func mksock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: mksock FILE...")
	}
	for _, a := range args {
		l := listenAt(ts, a)
		ts.Defer(func() { l.Close() })
	}
}

// leavesock makes the files of sockets that no process has open any more: leavesock FILE...
func leavesock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: leavesock FILE...")
	}
	for _, a := range args {
		ts.Check(listenAt(ts, a).Close())
	}
}

// answer has a daemon answer at a socket with the content of a file: answer SOCKET FILE.
func answer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: answer SOCKET FILE")
	}
	text := ts.ReadFile(args[1])
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })}
	l := listenAt(ts, args[0])
	go server.Serve(l)
	ts.Defer(func() { server.Close() })
}

// listenAt listens at a socket, whose file stays.
func listenAt(ts *testscript.TestScript, file string) *net.UnixListener {
	file = parent(ts, file)
	dir, err := os.Open(filepath.Dir(file))
	ts.Check(err)
	defer dir.Close()
	// The path of a socket is short; that of a script's directory need not be.
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(file)))
	ts.Check(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l.(*net.UnixListener)
}

// aged sets the time of the last change back: aged DURATION FILE...
func aged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: aged DURATION FILE...")
	}
	age, err := time.ParseDuration(args[0])
	ts.Check(err)
	at := time.Now().Add(-age)
	for _, a := range args[1:] {
		ts.Check(os.Chtimes(ts.MkAbs(a), at, at))
	}
}

// status runs the jackfield command and wants its exit status:
// status N ARG...
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: status N ARG...")
	}
	err := ts.Exec("jackfield", args[1:]...)
	got := 0
	if err != nil {
		var exit interface{ ExitCode() int }
		if !errors.As(err, &exit) {
			ts.Fatalf("jackfield: %v", err)
		}
		got = exit.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
}

// ordinary is status for a user who is not root: ordinary N ARG...
func ordinary(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: ordinary N ARG...")
	}
	// Directories of tests are for their user alone.
	ts.Check(os.Chmod(ts.MkAbs(".."), 0o755))
	cmd := exec.Command("/proc/self/exe") // of which the directory need not be the user's to enter
	cmd.Args = append([]string{"jackfield"}, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("jackfield: %v", err)
	}
	_, _ = ts.Stdout().Write(stdout.Bytes())
	_, _ = ts.Stderr().Write(stderr.Bytes())
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit status %s, want %s:\n%s%s", got, args[0], &stdout, &stderr)
	}
}

// parent makes the directory of a file.
func parent(ts *testscript.TestScript, file string) string {
	file = ts.MkAbs(file)
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
	return file
}
