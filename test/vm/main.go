// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/parts"
)

// Main replaces TestMain: it starts the machine, runs the tests in it, and exits. Where that is impossible it still runs
// the tests, which are skipped with the reason.
func Main(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		exit(0, probe(os.Args[2:]))
	}
	flag.Parse()
	if jail.Inside() {
		if err := setUp(); err != nil {
			exit(1, err)
		}
		e2e.Main(m)
	}
	if testing.Short() || Impossible() != nil {
		os.Exit(m.Run())
	}
	exit(runTests())
}

func exit(code int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// setUp sets up the hardware in the machine, and the cgroup of the pods.
func setUp() error {
	if err := os.MkdirAll("/sys/fs/cgroup/"+cgroup, 0o755); err != nil {
		return err
	}
	if isSELinux() {
		if err := startSELinux(); err != nil {
			return err
		}
	}
	return errors.Join(setUpHardware(context.Background()), setHugePages(hugePages))
}

// hugePages is the number of huge pages of 2 MiB in the machine.
const hugePages = 192

// Require skips a test of the machine, with the reason, if the machine cannot run. In CI it fails the test.
func Require(tb testing.TB) {
	tb.Helper()
	if !jail.Inside() {
		RequireStart(tb)
	}
}

// RequireStart is Require for a test that starts the machine itself.
func RequireStart(tb testing.TB) {
	tb.Helper()
	why := Impossible()
	if testing.Short() {
		why = errors.New("left out of short runs")
	}
	if why == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		tb.Fatalf("cannot run, and CI promises that it can: %v", why)
	}
	tb.Skipf("skipped: %v", why)
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...) }

// runTests runs this test program in the machine.
func runTests() (int, error) {
	ctx, stop := interruptible()
	defer stop()
	m, programs, env, err := prepareSession(ctx)
	if err != nil {
		return 1, err
	}
	if programs["test"], err = os.Executable(); err != nil {
		return 1, err
	}
	var args []string
	for _, arg := range os.Args[1:] {
		// The go command reads these files only outside.
		if !strings.HasPrefix(arg, "-test.testlogfile=") && !strings.HasPrefix(arg, "-test.outputdir=") {
			args = append(args, quote(arg))
		}
	}
	script := env + `exec >"$(echo /dev/vport*p1)" 2>&1
/share/bin/test ` + strings.Join(args, " ") + "\n"
	if isSELinux() {
		// The policy has no label for new files of /share.
		script += "status=$?\necho 0 >/sys/fs/selinux/enforce\nexit $status\n"
	}
	return m.run(ctx, session{Programs: programs, Script: script})
}

// prepareSession returns a machine, the programs that it needs, and the lines of a script that set the variables with which
// package e2e takes the machine for its jail.
func prepareSession(ctx context.Context) (m *machine, programs map[string]string, env string, err error) {
	if m, err = prepare(ctx, logf); err != nil {
		return nil, nil, "", err
	}
	kit, err := node.Prepare(ctx, logf, node.V24)
	if err != nil {
		return nil, nil, "", err
	}
	programs = map[string]string{}
	inside := *kit
	inside.Runc, inside.Busybox, inside.CNI = "/usr/sbin/runc", "/usr/bin/busybox", "/usr/lib/cni"
	inside.AppArmor = !isSELinux()
	if isSELinux() {
		store, err := parts.Open()
		if err != nil {
			return nil, nil, "", err
		}
		store.Logf = logf
		if programs, err = buildPolicies(ctx, store, m.cache, logf); err != nil {
			return nil, nil, "", err
		}
	}
	inside.Commands = map[string]string{}
	for name, file := range kit.Commands {
		programs[name], inside.Commands[name] = file, "/share/bin/"+name
	}
	if kit.NewRunc != "" {
		programs["runc"], inside.NewRunc = kit.NewRunc, "/share/bin/runc"
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		programs[name] = filepath.Join(kit.Containerd[node.V24], name)
	}
	inside.Containerd = map[node.Generation]string{node.V24: "/share/bin"}
	variables, err := inside.Env()
	if err != nil {
		return nil, nil, "", err
	}
	variables = append(variables, "CI="+os.Getenv("CI"), selinuxEnv+"="+os.Getenv(selinuxEnv), "TMPDIR="+jail.TempDir, "PATH=/share/bin:/usr/sbin:/usr/bin", jail.InsideEnv(cgroup))
	for _, v := range variables {
		env += "export " + quote(v) + "\n"
	}
	return m, programs, env, nil
}

// cgroup is the cgroup of all pods in the machine.
const cgroup = "jackfield"

// quote quotes a word for the shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
