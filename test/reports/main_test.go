// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// node runs a program in a mount namespace in which the script's directories are the node's. The umask is the one of
// a service.
const node = `#!/bin/sh
umask 022
exec unshare -m --propagation private sh -c '
for d in etc run var; do mount --bind "$WORK/$d" "/$d" || exit 99; done
exec "$@"' node "$@"
`

func TestReports(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("cannot run, and CI promises that it can: only root can mount")
		}
		t.Skip("skipped: only root can mount")
	}
	bin := buildPrograms(t)
	testscript.Run(t, testscript.Params{
		Dir:   "testdata",
		Setup: func(env *testscript.Env) error { return setUpNode(env, bin) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mknod": mknod, "mksock": mksock, "gone": gone, "runtime": startRuntime, "pod": readPod, "create": create, "remove": remove,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// buildPrograms builds the programs as a release has them, and the script node.
func buildPrograms(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "grpcnotrace", "-trimpath", "-o", bin+"/", "./cmd/...")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(bin, "node"), []byte(node), 0o755); err != nil {
		t.Fatal(err)
	}
	return bin
}

// setUpNode makes the directories that each node has. Directories of tests are readable by their owner only.
func setUpNode(env *testscript.Env, bin string) error {
	env.Values[scriptKey{}] = &script{bin: bin}
	env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	env.Setenv("CNI_PATH", bin)
	env.Setenv("CNI_NETNS", "/proc/self/ns/net")
	env.Setenv("CNI_NETNS_OVERRIDE", "1")
	env.Setenv("CNI_IFNAME", "net1")
	env.Setenv("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=apps;K8S_POD_NAME=web-0")
	for _, dir := range []string{"etc/jackfield", "etc/cdi", "run/cdi", "var/lib/cni", "dev", "usr/lib", "sys"} {
		if err := os.MkdirAll(filepath.Join(env.WorkDir, dir), 0o755); err != nil {
			return err
		}
	}
	return os.Symlink("/run", filepath.Join(env.WorkDir, "var/run"))
}

// scriptKey is the key of a script's state in its values.
type scriptKey struct{}

// mknod creates a character device: mknod FILE MAJOR MINOR.
func mknod(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: mknod FILE MAJOR MINOR")
	}
	major, err1 := strconv.ParseUint(args[1], 10, 32)
	minor, err2 := strconv.ParseUint(args[2], 10, 32)
	ts.Check(errors.Join(err1, err2))
	file := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
	ts.Check(unix.Mknod(file, unix.S_IFCHR|0o660, int(unix.Mkdev(uint32(major), uint32(minor)))))
}

// mksock leaves a socket: mksock FILE.
func mksock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mksock FILE")
	}
	file := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
	dir, err := os.Open(filepath.Dir(file))
	ts.Check(err)
	defer dir.Close()
	// An address holds 108 bytes.
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(file)))
	ts.Check(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	ts.Check(l.Close())
}

// gone waits until there are no files and no attachment's directories below the given ones: gone DIR...
func gone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: gone DIR...")
	}
	var left []string
	list := func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != ".jackfield.lock" {
			left = append(left, path)
		}
		return nil
	}
	ok := testkit.Until(func() bool {
		left = nil
		for _, dir := range args {
			_ = filepath.WalkDir(ts.MkAbs(dir), list)
		}
		return len(left) == 0
	})
	if !ok {
		ts.Fatalf("left behind: %q", left)
	}
}
