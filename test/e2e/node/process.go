// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Process is a program that runs in the background, with its output in a file.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // of Wait, once done
	once sync.Once
}

// StartProcess starts cmd as the leader of its own process group and appends its
// output to the file log.
func StartProcess(cmd *exec.Cmd, log string) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", cmd.Path, err)
	}
	defer f.Close()
	// The output is a file and not a pipe: daemons that keep a pipe open would delay Wait.
	cmd.Stdout, cmd.Stderr = f, f
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %q: %w", cmd.Path, err)
	}
	p := &Process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process ends and returns its error: nil for status 0.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("wait for %q: %w", p.cmd.Path, context.Cause(ctx))
	}
}

// Signal sends a signal. It does nothing if the process has ended.
func (p *Process) Signal(s os.Signal) {
	_ = p.cmd.Process.Signal(s)
}

// Stop ends the process with SIGTERM, and after grace kills its process group. It returns the process's
// error.
func (p *Process) Stop(grace time.Duration) error {
	p.once.Do(func() {
		p.Signal(unix.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(grace):
			_ = unix.Kill(-p.PID(), unix.SIGKILL)
		}
	})
	<-p.done
	return p.err
}

// Kill ends the process with SIGKILL and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Log returns the log, including that of earlier runs with the same file.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// WaitLog waits until the log, from byte offset from, contains one of texts. It fails if the process ends
// first.
func (p *Process) WaitLog(ctx context.Context, from int, texts ...string) error {
	for {
		ended := false
		select {
		case <-p.done:
			ended = true
		default:
		}
		log := p.Log()
		for _, t := range texts {
			if strings.Contains(log[min(from, len(log)):], t) {
				return nil
			}
		}
		if ended {
			return fmt.Errorf("wait for %q to log %q: it ended (%v): %w\n%s", p.cmd.Path, texts, p.err, errdefs.ErrUnavailable, Tail(log, 20))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %q to log %q: %w\n%s", p.cmd.Path, texts, context.Cause(ctx), Tail(log, 20))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Tail returns the last n lines of a text.
func Tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
