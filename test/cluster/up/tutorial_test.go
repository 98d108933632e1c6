// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
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

const tutorial = "../../../docs/tutorials/first-cluster.md"

// command is one command of the tutorial, and a part of its output.
type command struct {
	line   string
	output []string
}

// readTutorial returns the commands of the page, and its new values of the chart.
func readTutorial(t *testing.T) (commands []command, values string) {
	t.Helper()
	page, err := os.ReadFile(tutorial)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		switch m[1] {
		case "yaml":
			values = m[2]
			commands = append(commands, command{line: "write the values"})
		case "console":
			for line := range strings.Lines(m[2]) {
				line = strings.TrimRight(line, "\n")
				if after, ok := strings.CutPrefix(line, "$ "); ok {
					commands = append(commands, command{line: after})
				} else {
					last := &commands[len(commands)-1]
					last.output = append(last.output, line)
				}
			}
		}
	}
	return commands, values
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

// pattern matches the output that a command of the page must have. Columns may be wider than on the page.
func (c command) pattern() *regexp.Regexp {
	text := regexp.QuoteMeta(strings.Join(c.output, "\n"))
	for _, v := range varying {
		text = regexp.MustCompile(v.onPage).ReplaceAllLiteralString(text, v.pattern)
	}
	return regexp.MustCompile(regexp.MustCompile(` +`).ReplaceAllString(text, `\s+`))
}

// The page shows output as it is, and the test accepts that of another run.
func TestTutorialOutputVaries(t *testing.T) {
	commands, _ := readTutorial(t)
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
		if p := (command{output: []string{shown}}).pattern(); !p.MatchString(other) {
			t.Errorf("%s does not match %q", p, other)
		}
	}
	if p := (command{output: []string{"0 errors, 2 warnings"}}).pattern(); p.MatchString("10 errors, 2 notes") {
		t.Errorf("%s matches other output", p)
	}
}

// The commands of the tutorial work on the cluster of `make cluster`, and nothing is left after an interrupt.
func TestFirstClusterTutorial(t *testing.T) {
	if why := e2e.Impossible(); why != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("cannot run, and CI promises that it can: %v", why)
		}
		t.Skipf("skipped: %v", why)
	}
	commands, values := readTutorial(t)
	if len(commands) < 10 || values == "" {
		t.Fatalf("the page has %d commands, and the values %q", len(commands), values)
	}
	sysctls := readSysctls(t)
	dir := filepath.Join(t.TempDir(), "cluster")
	cmd := exec.Command("/proc/self/exe", "-dir", dir)
	cmd.Env = append(os.Environ(), commandEnv+"=1")
	screen := startCluster(t, cmd)

	for _, c := range commands {
		if c.line == "write the values" {
			if err := os.WriteFile(filepath.Join(dir, "values.yaml"), []byte(values), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := check(t.Context(), dir, c); err != nil {
			t.Errorf("$ %s\n%v", c.line, err)
		}
	}

	down := exec.Command("/proc/self/exe", "-dir", dir, "down")
	down.Env = cmd.Env
	if out, err := down.CombinedOutput(); err != nil || string(out) != "The cluster is gone.\n" {
		t.Errorf("down: %v, printed %q", err, out)
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
func check(ctx context.Context, dir string, c command) error {
	line := strings.ReplaceAll(c.line, ".cache/cluster", dir)
	want := c.pattern()
	for end := time.Now().Add(cluster.Patience); ; time.Sleep(time.Second) {
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.Dir = "../../.." // the checkout
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err == nil && !want.Match(out) {
			err = errors.New("want " + strings.Join(c.output, "\n"))
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
