// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/parts"
)

// scenarioEnv makes a test binary run nodes in a jail. The tests themselves run outside of any jail, to check
// what is left on the machine.
const scenarioEnv = "JACKFIELD_NODE_SCENARIO"

func TestMain(m *testing.M) {
	if os.Getenv(scenarioEnv) == "" {
		os.Exit(m.Run())
	}
	os.Exit(jail.Run(func() ([]string, error) {
		k, err := Prepare(context.Background(), func(f string, args ...any) { fmt.Fprintf(os.Stderr, f+"\n", args...) }, Generations()...)
		if err != nil {
			return nil, err
		}
		return k.Env()
	}, scenario))
}

// scenario runs a node of each generation with a pod that uses a host process and a hook. It
// reports that it is ready, and waits for the end of standard input.
func scenario() int {
	ctx := context.Background()
	kit, err := KitFromEnv()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, g := range Generations() {
		n, err := Start(ctx, kit, Options{Generation: g})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if os.Getenv(scenarioEnv) == "orderly" {
			defer func() {
				if err := n.Close(ctx); err != nil {
					fmt.Println(err)
				}
				// Mount namespaces of processes that just ended may exist a moment longer.
				if _, err := os.Stat(n.Dir()); err == nil {
					fmt.Println("left", n.Dir())
				}
			}()
		}
		pod, err := n.RunPod(ctx, PodOptions{})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		ctr, err := pod.Create(ctx, ContainerOptions{})
		if err == nil {
			err = ctr.Start(ctx)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready", ns)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 0
}

func require(t *testing.T) {
	t.Helper()
	err := jail.Possible()
	if ok, why := parts.Debian(); err == nil && !ok {
		err = fmt.Errorf("%s", why)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// When the test process ends, normally or by SIGKILL, the machine is as it was before.
func TestNodeLeavesNothing(t *testing.T) {
	require(t)
	for _, how := range []string{"orderly", "killed"} {
		t.Run(how, func(t *testing.T) {
			before := machine(t, "", "")
			cmd := exec.Command("/proc/self/exe", "-test.v=false")
			cmd.Env = append(os.Environ(), scenarioEnv+"="+how)
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(stdout)
			line, err := out.ReadString('\n')
			ns, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
			if err != nil || !ok {
				t.Errorf("it said %q, %v", line, err)
			}
			cgroup := fmt.Sprintf("jackfield-%d-", cmd.Process.Pid)
			if n := len(Leftovers(before, machine(t, ns, cgroup))); n < 10 {
				t.Errorf("saw only %d traces of what runs now", n)
			}
			if how == "killed" {
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			} else if err := stdin.Close(); err != nil {
				t.Error(err)
			}
			if rest, err := out.ReadString(0); rest != "" {
				t.Errorf("it said %q, %v", rest, err)
			}
			_ = cmd.Wait()
			var left []string
			for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if left = Leftovers(before, machine(t, ns, cgroup)); len(left) == 0 {
					return
				}
			}
			t.Errorf("left on the machine: %s", strings.Join(left, "\n"))
		})
	}
}

// machine lists what nodes could leave outside of their jail, with the processes of its PID namespace and its
// cgroups. It ignores other jails, because tests of other packages run at the same time.
func machine(t *testing.T, pidns, cgroup string) []string {
	t.Helper()
	var found []string
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifs {
		found = append(found, "interface "+i.Name)
	}
	procs, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if ns, err := os.Readlink(p); err == nil && ns == pidns {
			found = append(found, "process "+p)
		}
	}
	mounts, err := mountPoints()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		found = append(found, "mount "+m)
	}
	for _, pattern := range []string{"/run/n", "/run/t", "/run/containerd*", "/run/netns/*", "/etc/cni", "/var/lib/cni", "/var/lib/containerd*", "/opt/containerd"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	hierarchies, err := jail.CgroupMounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hierarchies {
		groups, err := os.ReadDir(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			other := strings.HasPrefix(g.Name(), "jackfield-") && (cgroup == "" || !strings.HasPrefix(g.Name(), cgroup))
			if g.IsDir() && !other {
				found = append(found, "cgroup "+filepath.Join(h, g.Name()))
			}
		}
	}
	return found
}
