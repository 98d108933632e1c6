// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/parts"
)

// Stages are the parts of a program that starts a cluster.
type Stages struct {
	// Prepared, if not nil, is called once, outside of the jail, when everything is built.
	Prepared func(*Kit) error
	// Started, if not nil, is called once, outside, with the ID of a process in the cluster's namespaces.
	Started func(pid int) error
	// Inside is the program. It may start a cluster. Its result is the exit status.
	Inside func() int
	// Logf reports progress while programs are built; nil: to standard error.
	Logf func(format string, args ...any)
}

// Impossible returns the reason why no cluster can run on this machine, or nil.
func Impossible() error {
	if ok, why := parts.Debian(); !ok {
		return errors.New(why)
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("no %s, which fetches runc and CNI plugins", tool)
		}
	}
	return jail.Possible()
}

// Run replaces main or TestMain: it fetches and builds what a cluster needs, runs Inside in a jail, and
// returns the exit status. Like jail.Run it starts this executable several times.
func Run(s Stages) int {
	if os.Getenv(initEnv) != "" {
		fmt.Fprintln(os.Stderr, "node:", runInit())
		return 1
	}
	logf := s.Logf
	if logf == nil {
		logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...) }
	}
	before := func() ([]string, error) {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		kit, err := Prepare(ctx, logf)
		if err == nil && s.Prepared != nil {
			err = s.Prepared(kit)
		}
		if err != nil {
			return nil, err
		}
		return kit.env()
	}
	return jail.RunStages(jail.Stages{Before: before, Started: s.Started, Inside: s.Inside})
}
