// SPDX-License-Identifier: Apache-2.0

package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stageEnv tells a re-executed process its stage. The value is "STAGE CGROUP".
	stageEnv = "JACKFIELD_JAIL"

	stageKeeper = "keeper"
	stageInit   = "init"
	stageInside = "inside"

	cloneFlags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

	// TempDir is TMPDIR inside. It is short because of socket paths.
	TempDir = "/run/t"
)

// Inside reports whether this process runs in a jail.
func Inside() bool {
	stage, _ := stage()
	return stage == stageInside
}

// Outside reports whether this process does not belong to a jail. If Outside and Inside are both false, the
// process is a stage of Run.
func Outside() bool {
	stage, _ := stage()
	return stage == ""
}

// CgroupParent returns the cgroup, "/jackfield-…", below which all cgroups of the jail are; "" outside.
func CgroupParent() string {
	if stage, cgroup := stage(); stage == stageInside {
		return "/" + cgroup
	}
	return ""
}

func stage() (stage, cgroup string) {
	stage, cgroup, _ = strings.Cut(os.Getenv(stageEnv), " ")
	return stage, cgroup
}

// Run is RunStages without Started.
func Run(before func() ([]string, error), inside func() int) int {
	return RunStages(Stages{Before: before, Inside: inside})
}

// Stages are the parts of a program that runs in a jail.
type Stages struct {
	// Before, if not nil, is called once, outside, where the machine's network is available. The variables
	// that it returns ("KEY=value") are set inside.
	Before func() ([]string, error)
	// Started, if not nil, is called once, outside, with the ID of the jail's first process, which has all
	// namespaces of the jail.
	Started func(pid int) error
	// Inside is the program. Its result is the exit status.
	Inside func() int
}

// RunStages runs a program in a jail and returns the exit status. Call it at the start of main or TestMain,
// before any goroutine: it creates the jail by running this executable again with the same arguments. The
// program therefore calls RunStages several times, and only the last of these processes calls Inside.
func RunStages(s Stages) int {
	var err error
	code := 1
	switch stage, cgroup := stage(); stage {
	case stageInside:
		return s.Inside()
	case stageInit:
		code, err = runInit(cgroup)
	case stageKeeper:
		err = keep(cgroup, os.Stdin)
		code = 0
	default:
		var env []string
		if s.Before != nil {
			env, err = s.Before()
		}
		if err == nil {
			code, err = runOuter(env, s.Started)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "jail:", err)
		return 1
	}
	return code
}

// self returns a command that runs this executable again as another stage.
func self(stage, cgroup string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(append(os.Environ(), env...), stageEnv+"="+stage+" "+cgroup)
	return cmd
}

// runOuter starts the keeper and the jail's first process, and waits.
func runOuter(env []string, started func(pid int) error) (int, error) {
	cgroup := fmt.Sprintf("jackfield-%d-%x", os.Getpid(), time.Now().UnixNano())
	release, err := startKeeper(cgroup)
	if err != nil {
		return 1, err
	}
	defer release()

	// The kernel sends the parent-death signal when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := self(stageInit, cgroup, env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: cloneFlags, Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("make namespaces: %w", err)
	}
	if started != nil {
		if err := started(cmd.Process.Pid); err != nil {
			_, _ = cmd.Process.Kill(), cmd.Wait()
			return 1, err
		}
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				cmd.Process.Signal(s)
				// A signal must end the test process soon.
				time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
			case <-done:
				return
			}
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return cmd.ProcessState.ExitCode(), err
}

// startKeeper starts the process that cleans up after the outer process. It returns a function that waits
// until this is done.
func startKeeper(cgroup string) (release func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	defer r.Close()
	cmd := self(stageKeeper, cgroup)
	cmd.Stdin = r
	cmd.Dir = "/"
	// The keeper has its own session, so that Ctrl-C does not end it as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	return func() {
		w.Close()
		if err := cmd.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "jail: keeper:", err)
		}
	}, nil
}

// Possible returns nil if this process can create a jail, and the reason otherwise.
func Possible() error {
	if Inside() {
		return nil
	}
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("this needs root, and runs as uid %d", uid)
	}
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: cloneFlags}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("this root may not make mount, PID and network namespaces: %w", err)
	}
	return cgroupsUsable()
}

// InsideEnv returns the variable with which a program that runs in a machine of its own is inside. The machine takes the
// jail's place, and cgroup is the cgroup of its pods.
func InsideEnv(cgroup string) string { return stageEnv + "=" + stageInside + " " + cgroup }
