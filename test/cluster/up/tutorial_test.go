// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/jail"
)

func TestMain(m *testing.M) {
	// The jail starts the test binary again, which is then the command.
	if os.Getenv(commandEnv) != "" || !jail.Outside() {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// commandEnv makes the test binary the command.
const commandEnv = "JACKFIELD_CLUSTER_COMMAND"

// pages are the tutorials in one cluster. Each begins where the one before ended.
var pages = []string{"first-cluster", "first-pod", "dpdk-packets"}

// step is a command of a tutorial with a part of its output, or a file to write.
type step struct {
	line   string
	output []string
	file   string // its path, relative to the checkout; "" for a command
	text   string
}

// downLine is the command that ends the cluster.
const downLine = "make cluster-down"

// readTutorial returns the steps of a page.
func readTutorial(t *testing.T, page string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/tutorials/" + page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		switch m[1] {
		case "yaml":
			name, _, ok := strings.Cut(strings.TrimPrefix(m[2], "# "), "\n")
			if !ok || !strings.HasPrefix(m[2], "# ") || !filepath.IsLocal(name) {
				t.Fatalf("%s: a file has no path in its first line:\n%s", page, m[2])
			}
			steps = append(steps, step{file: name, text: m[2]})
		case "console":
			for line := range strings.Lines(m[2]) {
				line = strings.TrimRight(line, "\n")
				if after, ok := strings.CutPrefix(line, "$ "); ok {
					steps = append(steps, step{line: after})
				} else {
					last := &steps[len(steps)-1]
					last.output = append(last.output, line)
				}
			}
		case "sh":
			// The start of the cluster, and a variable.
			if !strings.HasPrefix(m[2], "make cluster MULTUS=1 OVS=1\n") && !strings.HasPrefix(m[2], "export PATH=$PWD/.cache/cluster/bin:$PATH\n") {
				t.Errorf("%s: the test does not run %s", page, m[2])
			}
		default:
			t.Errorf("%s: the test knows no block %q", page, m[1])
		}
	}
	if len(steps) < 10 {
		t.Fatalf("%s has %d steps", page, len(steps))
	}
	return steps
}

// varying are the parts of the page's output that differ at each run.
var varying = []struct{ onPage, pattern string }{
	{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, `\S+`},                       // time
	{`\b[A-Z][a-z]{2} \d+ \d\d:\d\d\b`, `[A-Z][a-z]{2} \d+ [\d:]+`},  // date of a file
	{`\b(\d+[dhms])+\b`, `\d\w*`},                                    // age
	{`\bvswitch-[0-9a-z]+-[0-9a-z]+`, `vswitch-[0-9a-z]+-[0-9a-z]+`}, // pod
	{`\b[0-9a-f]{64}\b`, `\S+`},                                      // container
	{`\b\d+ warnings?\b`, `\d+ warnings?`},
}

// pattern matches the output that a command of the page must have. Columns may be wider than on the page. A command
// without output on the page prints nothing.
func (c step) pattern() *regexp.Regexp {
	if len(c.output) == 0 {
		return regexp.MustCompile("^$")
	}
	text := regexp.QuoteMeta(strings.Join(c.output, "\n"))
	for _, v := range varying {
		text = regexp.MustCompile(v.onPage).ReplaceAllLiteralString(text, v.pattern)
	}
	return regexp.MustCompile(regexp.MustCompile(` +`).ReplaceAllString(text, `\s+`))
}

// The page shows output as it is, and the test accepts that of another run.
func TestTutorialOutputVaries(t *testing.T) {
	var commands []step
	for _, page := range pages {
		commands = append(commands, readTutorial(t, page)...)
	}
	for _, c := range commands {
		text := strings.Join(c.output, "\n")
		if strings.Contains(text, "…") {
			t.Errorf("$ %s\nthe page has a placeholder:\n%s", c.line, text)
		}
		if !c.pattern().MatchString(text) {
			t.Errorf("$ %s\n%s does not match\n%s", c.line, c.pattern(), text)
		}
	}
	for shown, other := range map[string]string{
		"NAME AGE\nnode 52s":                 "NAME   AGE\nnode   4m3s",
		"1,   5 Nov 25 14:02 /dev/acme0":     "1,   5 Jan  1 09:41 /dev/acme0",
		"hello from vswitch-6c9d7b5f8-x2kzp": "hello from vswitch-0a-b",
		"r 77e1f05ac2b19d0477e1f05ac2b19d0477e1f05ac2b19d0477e1f05ac2b19d04 since 2026-11-25T14:02:31Z": "r  0123456789ab  since 2027-01-01T00:00:00Z",
		"0 errors, 2 warnings": "0 errors, 1 warning",
	} {
		if p := (step{output: []string{shown}}).pattern(); !p.MatchString(other) {
			t.Errorf("%s does not match %q", p, other)
		}
	}
	if p := (step{output: []string{"0 errors, 2 warnings"}}).pattern(); p.MatchString("10 errors, 2 notes") {
		t.Errorf("%s matches other output", p)
	}
}

// The tutorials work in one cluster, one after the other, and nothing is left at their end.
func TestClusterTutorials(t *testing.T) {
	if why := e2e.Impossible(); why != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("cannot run, and CI promises that it can: %v", why)
		}
		t.Skipf("skipped: %v", why)
	}
	sysctls := readSysctls(t)
	dir := filepath.Join(t.TempDir(), "cluster")
	cmd := exec.Command("/proc/self/exe", "-dir", dir, "-multus", "-ovs")
	cmd.Env = append(os.Environ(), commandEnv+"=1")
	screen := startCluster(t, cmd)

	checkout := layCheckout(t, dir)
	for _, page := range pages {
		for _, s := range readTutorial(t, page) {
			if s.file != "" {
				if err := os.WriteFile(filepath.Join(checkout, s.file), []byte(s.text), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			began := time.Now()
			if s.line == downLine {
				s.line = commandEnv + "=1 /proc/" + strconv.Itoa(os.Getpid()) + "/exe -dir " + dir + " down"
			}
			if err := check(t.Context(), checkout, s); err != nil {
				t.Fatalf("%s: $ %s\n%v", page, s.line, err)
			}
			t.Logf("%s: %.1f s: $ %s", page, time.Since(began).Seconds(), s.line)
		}
	}

	if err := cmd.Wait(); err != nil {
		t.Errorf("the cluster: %v", err)
	}
	if rest := <-screen; !strings.Contains(rest, "are gone") {
		t.Errorf("the last lines are %q", rest)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "pid" {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	if after := readSysctls(t); !slices.Equal(after, sysctls) {
		t.Errorf("kernel parameters were %q and are %q", sysctls, after)
	}
	nothingLeft(t, cmd.Process.Pid)
}

// layCheckout returns a directory with the parts of the checkout that the pages use, and the cluster's directory.
func layCheckout(t *testing.T, cluster string) string {
	t.Helper()
	dir := t.TempDir()
	deploy, err := filepath.Abs("../../../deploy")
	err = errors.Join(err, os.Mkdir(filepath.Join(dir, ".cache"), 0o755), os.Symlink(deploy, filepath.Join(dir, "deploy")),
		os.Symlink(cluster, filepath.Join(dir, ".cache/cluster")))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startCluster starts the command and returns when the cluster is ready. The rest of what it prints is sent
// at its end.
func startCluster(t *testing.T, cmd *exec.Cmd) <-chan string {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	})
	lines := bufio.NewReader(stdout)
	var printed strings.Builder
	for {
		line, err := lines.ReadString('\n')
		printed.WriteString(line)
		if err != nil {
			t.Fatalf("the cluster did not start: %v\n%s", err, printed.String())
		}
		if strings.Contains(line, "make cluster-down") {
			break
		}
	}
	rest := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(lines)
		if err != nil && !errors.Is(err, os.ErrClosed) {
			text = append(text, err.Error()...)
		}
		rest <- string(text)
	}()
	return rest
}

// check runs a command of the page until it prints what the page has. A vswitch needs a moment to start.
func check(ctx context.Context, checkout string, s step) error {
	want := s.pattern()
	for end := time.Now().Add(cluster.Patience); ; time.Sleep(time.Second) {
		cmd := exec.CommandContext(ctx, "sh", "-c", s.line)
		cmd.Dir = checkout
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(checkout, ".cache/cluster/bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		switch matches := want.Match(bytes.ReplaceAll(out, []byte("\r"), nil)); {
		case !matches:
			err = errors.Join(err, errors.New("want "+strings.Join(s.output, "\n")))
		case strings.Contains(s.line, "jackfield explain"):
			err = nil // its exit status is that of a refusal
		}
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(err, errors.New(string(out)))
		}
	}
}

// readSysctls returns the kernel parameters that a kubelet sets.
func readSysctls(t *testing.T) []string {
	t.Helper()
	var values []string
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, name+"="+strings.TrimSpace(string(value)))
	}
	return values
}

// nothingLeft checks that the machine has no cgroup of the cluster that a process ran, and none of its mounts.
func nothingLeft(t *testing.T, pid int) {
	t.Helper()
	mounts, err := jail.CgroupMounts()
	if err != nil {
		t.Fatal(err)
	}
	prefix := "jackfield-" + strconv.Itoa(pid) + "-"
	for _, m := range mounts {
		left, err := filepath.Glob(filepath.Join(m, prefix+"*"))
		if err != nil || len(left) > 0 {
			t.Errorf("cgroups are left: %v, %v", left, err)
		}
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(table), "/var/lib/kubelet") || strings.Contains(string(table), "/run/jackfield") {
		t.Errorf("mounts are left: %v\n%s", err, table)
	}
}
