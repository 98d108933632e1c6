// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/ovs"
)

// A cluster waits most of its time. So all tests together run in two clusters at the same time, each in a process
// of its own, and take little more than half as long.

// secondCluster are the tests of the second cluster. Both halves take equally long.
func secondCluster() []string {
	return []string{"TestNodesHaveTheirOwnDevices", "TestNothingIsLeftAfterScaling", "TestRolloutWhilePodsArrive", "TestRebootReportsMissedContainers",
		"TestRequestsThatClaimCosts", "TestRequestsOfWebhookAndMultus", "TestJackfieldMakesNoRequests", "TestPortReturnsOnOpenVSwitch"}
}

// halfEnv marks the processes of the two halves.
const halfEnv = "JACKFIELD_KUBE_HALF"

// wantsAllTests reports whether the command line selects all tests.
func wantsAllTests() bool {
	for _, name := range []string{"test.run", "test.skip", "test.bench"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return os.Getenv(halfEnv) == ""
}

// prepare builds what the tests need beside a cluster.
func prepare(*cluster.Kit) error {
	return errors.Join(grout.Prepare(context.Background()), ovs.Prepare())
}

// runHalves runs both halves, prints their output one after the other, and returns the exit status.
func runHalves() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := runHalvesWith(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		return 1
	}
	return status
}

func runHalvesWith(ctx context.Context) (status int, err error) {
	list, err := exec.CommandContext(ctx, "/proc/self/exe", "-test.list=^Test").Output()
	if err != nil {
		return 1, fmt.Errorf("list tests: %w", err)
	}
	first, second := strings.Fields(string(list)), secondCluster()
	for _, name := range second {
		i := slices.Index(first, name)
		if i < 0 {
			return 1, fmt.Errorf("the second cluster's test %s does not exist", name)
		}
		first = slices.Delete(first, i, i+1)
	}
	// Two processes must not build the same at the same time.
	kit, err := cluster.Prepare(ctx, logBuild)
	if err == nil {
		err = prepare(kit)
	}
	if err != nil {
		return 1, err
	}
	var halves []*exec.Cmd
	for i, others := range [][]string{second, first} {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"-test.skip=^(" + strings.Join(others, "|") + ")$"}, os.Args[1:]...)...)
		cmd.Args[0] = os.Args[0]
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", halfEnv, i+1))
		cmd.Stdout = &bytes.Buffer{}
		cmd.Stderr = cmd.Stdout
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		halves = append(halves, cmd)
		err = errors.Join(err, cmd.Start())
	}
	for _, cmd := range halves {
		if cmd.Process == nil {
			continue
		}
		if err := cmd.Wait(); err != nil {
			status = 1
			fmt.Fprintln(cmd.Stdout, "kube: one of the two clusters:", err)
		}
		_, _ = cmd.Stdout.(*bytes.Buffer).WriteTo(os.Stdout)
	}
	return status, err
}

// logBuild reports the progress of builds.
func logBuild(format string, args ...any) { fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...) }
