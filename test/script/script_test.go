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

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/test/kubelet"
	"github.com/jackfield/jackfield/test/ocivalid"
)

var update = flag.Bool("update", false, "write the output of the commands into the scripts")

func TestMain(m *testing.M) {
	// The umask gives the files of the scripts the modes of a node's files for any user.
	unix.Umask(0o022)
	testscript.Main(m, map[string]func(){"jackfield": jackfield})
}

// jackfield runs the command as cmd/jackfield does.
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
			"mknod": mknod, "mkfifo": mkfifo, "mksock": mksock, "leavesock": leavesock, "answer": answer, "ordinary": ordinary, "aged": aged, "status": status, "root": root, "kubelet": startKubelet, "valid": valid,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
	})
}

// testKey is the key of the test in the values of a script.
type testKey struct{}

// skip skips a script because the environment lacks something. In CI, which has everything, it fails
// the script.
func skip(ts *testscript.TestScript, format string, args ...any) {
	if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
		ts.Fatalf(format, args...)
	}
	ts.Value(testKey{}).(testscript.T).Skip(fmt.Sprintf(format, args...))
}

// root skips a script that needs root: root WHY...
func root(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: root WHY...")
	}
	if os.Geteuid() != 0 {
		skip(ts, "%s", strings.Join(args, " "))
	}
}

// mknod creates a device node: mknod FILE c|b MAJOR MINOR.
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

// mkfifo creates FIFOs: mkfifo FILE...
func mkfifo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: mkfifo FILE...")
	}
	for _, a := range args {
		ts.Check(unix.Mkfifo(parent(ts, a), 0o644))
	}
}

// mksock creates listening sockets: mksock FILE...
func mksock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: mksock FILE...")
	}
	for _, a := range args {
		l := listenAt(ts, a)
		ts.Defer(func() { l.Close() })
	}
}

// leavesock creates socket files that no process listens on: leavesock FILE...
func leavesock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: leavesock FILE...")
	}
	for _, a := range args {
		ts.Check(listenAt(ts, a).Close())
	}
}

// answer starts a daemon that answers on a socket with the content of a file: answer SOCKET FILE.
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

// startKubelet starts a kubelet that allocated a device of a claim to a container: kubelet SOCKET NAMESPACE POD CONTAINER
// CLAIM DRIVER DEVICE. The device's pool is "node".
func startKubelet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 7 {
		ts.Fatalf("usage: kubelet SOCKET NAMESPACE POD CONTAINER CLAIM DRIVER DEVICE")
	}
	server, err := kubelet.Start(ts.MkAbs(args[0]))
	if err != nil {
		ts.Fatalf("start kubelet: %v", err)
	}
	ts.Defer(server.Stop)
	server.SetPods(kubelet.Pod(args[1], args[2], kubelet.Container(args[3], kubelet.Claim(args[1], args[4], args[5], args[6]))))
}

// listenAt listens on a socket. Closing it keeps the file.
func listenAt(ts *testscript.TestScript, file string) *net.UnixListener {
	file = parent(ts, file)
	dir, err := os.Open(filepath.Dir(file))
	ts.Check(err)
	defer dir.Close()
	// A script's directory can have a longer path than a socket address allows.
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(file)))
	ts.Check(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l.(*net.UnixListener)
}

// aged sets the modification time back: aged DURATION FILE...
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

// status runs the jackfield command and checks its exit status: status N ARG...
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
	// Only their owner can enter the tests' directories.
	ts.Check(os.Chmod(ts.MkAbs(".."), 0o755))
	cmd := exec.Command("/proc/self/exe") // the user need not be able to enter the program's directory
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

// valid checks with runtime-tools what was edited in an OCI configuration: valid BEFORE AFTER.
func valid(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: valid BEFORE AFTER")
	}
	ts.Check(ocivalid.Compare([]byte(ts.ReadFile(args[0])), []byte(ts.ReadFile(args[1]))))
}

// parent creates the directory of a file.
func parent(ts *testscript.TestScript, file string) string {
	file = ts.MkAbs(file)
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
	return file
}
