// SPDX-License-Identifier: Apache-2.0

package grout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// callTimeout bounds one run of grcli. grout takes 20 to 120 ms for a port.
	callTimeout = 10 * time.Second
	// maxOutput bounds the output of one run. An interface takes some 500 bytes.
	maxOutput = 4 << 20
	// grcliPause is the pause between two runs of grcli while grout's listen queue is full.
	grcliPause = 50 * time.Millisecond
)

// netInterface is an interface in the output of "grcli -j interface show".
type netInterface struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Type        string   `json:"type"`
	Flags       []string `json:"flags"`
	Mode        string   `json:"mode"`
	Domain      string   `json:"domain"`
	MTU         int      `json:"mtu"`
	Devargs     string   `json:"devargs"`
	Queues      int      `json:"n_rxq"`
}

// commandError is the error that grcli prints for a failed command.
type commandError struct {
	Message  string   `json:"error"`
	Errno    int      `json:"errno"`
	Expected []string `json:"expected"`
}

func (e *commandError) Error() string { return diag.Excerpt(e.Message, diag.MaxQuoted) }

// is reports whether the command failed with an error number.
func (e *commandError) is(errno unix.Errno) bool { return e.Errno == int(errno) }

// unavailable reports whether grcli could not reach grout.
func (e *commandError) unavailable() bool {
	return strings.HasPrefix(e.Message, "gr_connect") || e.is(unix.ECONNRESET) || e.is(unix.EPIPE)
}

// runGrcli runs grcli with several commands, one a line, and returns its output lines. Without keepGoing
// grcli stops at the first failed command. failed holds the errors of the commands. While grout's
// listen queue is full, grcli fails before its first command, and runGrcli retries.
func (d *Driver) runGrcli(ctx context.Context, keepGoing bool, commands ...string) (lines [][]byte,
	failed []*commandError, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = retry.Every(grcliPause).Retry(ctx, vswitch.IsQueueFull, func() (err error) {
		lines, failed, err = d.runOnce(ctx, keepGoing, commands...)
		return err
	})
	return lines, failed, err
}

// runOnce runs one grcli. If grout's listen queue is full, it returns EAGAIN.
func (d *Driver) runOnce(ctx context.Context, keepGoing bool, commands ...string) (lines [][]byte,
	failed []*commandError, err error) {
	args := []string{"-s", d.Socket(), "-j"}
	if !keepGoing {
		args = append(args, "-e")
	}
	if path.IsAbs(d.Grcli) {
		if err := trust.CheckProgram(hostfs.Host(), d.Grcli); err != nil && !errdefs.IsNotFound(err) {
			return nil, nil, d.unavailable("do not run vswitches.%s.grcli: %v", d.Name, err)
		}
	}
	var stdout, stderr boundedBuffer
	cmd := d.command(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(commands, "\n")+"\n"), &stdout, &stderr
	err = cmd.Run()
	failed = parseErrors(stderr.buf.Bytes())
	// grcli reports a failed connection like a failed command, so those errors come before its exit
	// status.
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil, d.unavailable("grcli timed out")
	case stdout.overflow || stderr.overflow:
		return nil, nil, d.unavailable("grcli prints more than %d bytes", maxOutput)
	case len(failed) > 0 && failed[0].unavailable() && failed[0].is(unix.EAGAIN):
		return nil, nil, d.unavailable("grcli: connect: %w", unix.EAGAIN)
	case len(failed) > 0 && failed[0].unavailable():
		why := failed[0].Error()
		if !failed[0].is(unix.ENOENT) && !failed[0].is(unix.ECONNREFUSED) && !failed[0].is(unix.ECONNRESET) {
			why += "; grcli and grout must have the same version"
		}
		return nil, nil, &vswitch.UnavailableError{Switch: d.Name, Endpoint: d.Socket(),
			Err:  errors.New("grcli: " + why),
			Down: failed[0].is(unix.ENOENT) || failed[0].is(unix.ECONNREFUSED)}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES):
		return nil, nil, d.cannotRun(err)
	case err != nil && len(failed) == 0:
		said := ""
		if stderr.buf.Len() > 0 {
			said = ": " + diag.Quote(stderr.buf.String())
		}
		return nil, nil, d.unavailable("run %q (vswitches.%s.grcli): %v%s", d.Grcli, d.Name, err, said)
	}
	return bytes.Split(bytes.TrimSpace(stdout.buf.Bytes()), []byte("\n")), failed, nil
}

// command returns a grcli that is killed together with its process group when ctx ends.
func (d *Driver) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.Grcli, args...)
	// The C library fails in a locale that is not installed, and grcli prints its messages.
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// parseErrors parses grcli's standard error, which has one JSON object a line.
func parseErrors(stderr []byte) []*commandError {
	var list []*commandError
	for line := range bytes.Lines(stderr) {
		e := new(commandError)
		if json.Unmarshal(line, e) == nil && e.Message != "" {
			list = append(list, e)
		}
	}
	return list
}

// show returns the existing interfaces among the given names.
func (d *Driver) show(ctx context.Context, names ...string) (map[string]netInterface, error) {
	var commands []string
	for _, name := range names {
		commands = append(commands, "interface show name "+name)
	}
	lines, failed, err := d.runGrcli(ctx, true, commands...)
	if err != nil {
		return nil, err
	}
	for _, e := range failed {
		if !e.is(unix.ENODEV) {
			return nil, d.unknown("show interface: %v", e)
		}
	}
	return d.parseInterfaces(lines)
}

// parseInterfaces parses grcli's output, one interface a line, into a map by name.
func (d *Driver) parseInterfaces(lines [][]byte) (map[string]netInterface, error) {
	found := map[string]netInterface{}
	for _, line := range lines {
		if len(line) == 0 || bytes.HasPrefix(line, []byte("Created interface ")) {
			continue
		}
		var i netInterface
		if err := json.Unmarshal(line, &i); err != nil || i.Name == "" {
			return nil, d.garbage(line)
		}
		found[i.Name] = i
	}
	return found, nil
}

func (d *Driver) garbage(line []byte) error {
	return d.unknown("%q printed %s: must be an interface in JSON", d.Grcli,
		diag.Quote(string(line[:min(len(line), 2*diag.MaxQuoted)])))
}

// unknown returns the error for an unexpected response.
func (d *Driver) unknown(format string, args ...any) error {
	return errdefs.ErrUnknown.WithMessage(fmt.Sprintf("vswitch %q: ", d.Name) + fmt.Sprintf(format, args...))
}

// cannotRun returns the error for a grcli that does not start. The state of grout is then unknown.
func (d *Driver) cannotRun(err error) error {
	var errno unix.Errno
	errors.As(err, &errno)
	return errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf(
		"vswitch %q: cannot run %q: %v: install grcli, or correct vswitches.%s.grcli",
		d.Name, d.Grcli, errno, d.Name))
}

func (d *Driver) unavailable(format string, args ...any) error {
	return &vswitch.UnavailableError{Switch: d.Name, Endpoint: d.Socket(), Err: fmt.Errorf(format, args...)}
}

// boundedBuffer holds an output of at most maxOutput bytes. A program with more output receives
// SIGPIPE.
type boundedBuffer struct {
	buf      bytes.Buffer
	overflow bool
}

var errOverflow = errors.New("output is too long")

// Write fails beyond maxOutput bytes.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.overflow = b.buf.Len()+len(p) > maxOutput; b.overflow {
		return 0, errOverflow
	}
	return b.buf.Write(p)
}
