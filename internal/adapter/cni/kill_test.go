// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// killVar names, in the environment of a process that is to be killed, the host
// root and the number of the step at which it is.
const killVar = "JACKFIELD_TEST_KILL"

func TestMain(m *testing.M) {
	if v := os.Getenv(killVar); v != "" {
		os.Exit(runKilled(v))
	}
	os.Exit(m.Run())
}

// runKilled is the plugin, killed with SIGKILL when it reaches a step.
func runKilled(v string) int {
	var at int
	var dir string
	if _, err := fmt.Sscanf(v, "%d %s", &at, &dir); err != nil {
		return 3
	}
	host, err := hostfs.New(dir)
	if err != nil {
		return 3
	}
	step := 0
	p := Plugin{Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Host: host,
		reached: func(string) {
			if step++; step == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}}
	if p.Run(context.Background()) != nil {
		return 1
	}
	return 0
}

// runUntil runs the plugin in a process of its own and kills it at a step; false
// when it had fewer.
func (n *node) runUntil(at int, environ []string, conf string) (killed bool) {
	n.t.Helper()
	self, err := os.Executable()
	testkit.Must(n.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(environ, fmt.Sprintf("%s=%d %s", killVar, at, n.dir))
	cmd.Stdin = strings.NewReader(conf)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		n.t.Fatalf("step %d: %v\n%s", at, err, out)
	}
	return true
}

// After an ADD or DEL that was killed at any step, DEL and GC leave nothing.
func TestDelOrGCRepairsKillAtEveryStep(t *testing.T) {
	clean := map[string]func(n *node){
		"DEL": func(n *node) { n.mustRun(env("DEL"), confWith("")) },
		"GC":  func(n *node) { n.mustRun(env("GC"), confWith(`, "cni.dev/valid-attachments": []`)) },
	}
	for name, undo := range clean {
		for _, op := range []struct {
			command string
			before  func(n *node)
			least   int // steps
		}{
			{"ADD", func(*node) {}, 5},
			{"DEL", func(n *node) { n.mustRun(env("ADD"), confWith("")) }, 2},
		} {
			for at := 1; ; at++ {
				n := newNode(t)
				op.before(n)
				if !n.runUntil(at, env(op.command), confWith("")) {
					if at <= op.least {
						t.Fatalf("%s has %d steps only", op.command, at-1)
					}
					break
				}
				undo(n)
				if left := n.files(); len(left) > 0 {
					t.Errorf("%s killed at step %d: %s left %q", op.command, at, name, left)
				}
			}
		}
	}
	// A record of which only a part was written.
	for name, undo := range clean {
		n := newNode(t)
		n.mustRun(env("STATUS"), confWith(""))
		n.write(attach.DefaultStateDir+"/."+recordFileName("fast", testID, "net1")+".new", `{"netw`)
		undo(n)
		if left := n.files(); len(left) > 0 {
			t.Errorf("%s left %q", name, left)
		}
	}
}

func TestAddsAndDelsRunInParallel(t *testing.T) {
	n := newNode(t)
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for i := range 24 {
		wg.Go(func() {
			id := fmt.Sprintf("CNI_CONTAINERID=container%d", i)
			for range 4 {
				for _, command := range []string{"ADD", "DEL"} {
					var err error
					// On a busy machine another may have the lock for longer than it is
					// waited for. The caller gets "try again later".
					testkit.Until(func() bool {
						var out bytes.Buffer
						p := Plugin{Environ: env(command, id), Stdin: strings.NewReader(confWith("")), Stdout: &out, Stderr: &out, Host: n.host}
						err = p.Run(context.Background())
						return err == nil || attach.AsError(err).Code != types.ErrTryAgainLater
					})
					if err != nil {
						errs <- fmt.Errorf("%s %s: %w", command, id, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// Of parallel ADDs of one attachment, which runtimes must not start, one succeeds and nothing is lost.
func TestOneOfParallelAddsWins(t *testing.T) {
	n := newNode(t)
	var wg sync.WaitGroup
	codes := make(chan uint, 8)
	for range cap(codes) {
		wg.Go(func() {
			var out bytes.Buffer
			p := Plugin{Environ: env("ADD"), Stdin: strings.NewReader(confWith("")), Stdout: &out, Stderr: &out, Host: n.host}
			if err := p.Run(context.Background()); err != nil {
				codes <- attach.AsError(err).Code
				return
			}
			codes <- 0
		})
	}
	wg.Wait()
	close(codes)
	won := 0
	for code := range codes {
		switch code {
		case 0:
			won++
		case codeExists, types.ErrTryAgainLater:
		default:
			t.Errorf("code %d", code)
		}
	}
	if won != 1 || len(n.files()) != 4 {
		t.Errorf("%d ADDs won, and left %q", won, n.files())
	}
}
