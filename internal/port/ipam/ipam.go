// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/network"
	"github.com/jackfield/jackfield/internal/port/record"
)

const maxResult = 4 << 20

// NestedMark is set in the environment of IPAM plugins. Without it, an IPAM plugin that runs
// jackfield-cni would recurse without end.
const NestedMark = "JACKFIELD_CNI_NESTED"

// Plugin is the IPAM plugin of a network.
type Plugin struct {
	Conf    *network.Config
	Path    string   // CNI_PATH: the directories of plugins
	Environ []string // of the plugin's process, NAME=value
	Stderr  io.Writer
}

// Run runs the plugin until ctx ends, with the network's configuration (§4, Delegated plugin protocol), and returns
// its output. more holds further parameters, NAME=value. The error has a code of CNI. The invoke package of
// containernetworking/cni is not used, because it links OpenTelemetry.
func (p *Plugin) Run(ctx context.Context, command string, more ...string) ([]byte, error) {
	name := p.Conf.IPAMType
	if p.Path == "" {
		return nil, attach.Fail(types.ErrInvalidEnvironmentVariables, "required environment variables missing: CNI_PATH",
			"ipam.type %q must be in one of its directories", name)
	}
	file := p.find()
	if file == "" {
		return nil, p.NotFoundError()
	}
	var out bytes.Buffer
	said := &lastLine{}
	// The kernel returns ETXTBSY while the executable is being replaced.
	isBusy := func(err error) bool { return errors.Is(err, unix.ETXTBSY) }
	limit, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := retry.Every(200*time.Millisecond).Retry(limit, isBusy, func() error {
		cmd := exec.CommandContext(ctx, file)
		// When ctx ends, the plugin's children end with it.
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
		cmd.WaitDelay = time.Second
		// The last entry of each name takes effect.
		cmd.Env = slices.Concat(p.Environ, more, []string{"CNI_COMMAND=" + command, NestedMark + "=1"})
		cmd.Stdin, cmd.Stdout = strings.NewReader(p.Conf.Text), &limitedWriter{&out, maxResult}
		cmd.Stderr = io.MultiWriter(p.Stderr, said)
		return cmd.Run()
	})
	if err != nil && ctx.Err() != nil {
		return nil, attach.Fail(types.ErrTryAgainLater, "IPAM plugin "+name+" timed out",
			"%s exceeded the time limit of the operation", command)
	}
	if err != nil {
		return nil, newError(command, name, out.Bytes(), said.String(), err)
	}
	return out.Bytes(), nil
}

// NotFoundError returns the error for a plugin that is not installed.
func (p *Plugin) NotFoundError() error {
	return p.Conf.Invalid("ipam.type", diag.Quote(p.Conf.IPAMType), "an executable in CNI_PATH, "+p.Path)
}

// IsInstalled reports whether the plugin is in a directory of Path.
func (p *Plugin) IsInstalled() bool { return p.find() != "" }

// find returns the path of the plugin, or "".
func (p *Plugin) find() string {
	if p.Conf.IPAMType == "" {
		return ""
	}
	for _, dir := range filepath.SplitList(p.Path) {
		file := filepath.Join(dir, p.Conf.IPAMType)
		if st, err := os.Stat(file); dir != "" && err == nil && st.Mode().IsRegular() {
			return file
		}
	}
	return ""
}

// Release runs DEL of the IPAM plugin in a record, with the parameters of its ADD except CNI_NETNS. environ is the
// environment of the plugin's process. Its CNI_NETNS is the attachment's network namespace, or empty if it is unknown.
func Release(ctx context.Context, key record.Key, i *record.IPAM, environ []string, stderr io.Writer) error {
	conf, err := network.ParseHeader(i.Config)
	if err != nil {
		return err
	}
	conf.IPAMType = i.Type
	p := &Plugin{Conf: conf, Path: i.Path, Stderr: stderr, Environ: slices.Concat(environ,
		[]string{"CNI_CONTAINERID=" + key.ContainerID, "CNI_IFNAME=" + key.Interface,
			"CNI_PATH=" + i.Path, "CNI_ARGS=" + i.Args})}
	_, err = p.Run(ctx, "DEL")
	return err
}

// ReleaseAbandoned returns a function that calls [Release] outside of a CNI operation. The IPAM plugin gets the
// system's PATH and an empty CNI_NETNS.
func ReleaseAbandoned(stderr io.Writer) func(context.Context, record.Key, *record.IPAM) error {
	return func(ctx context.Context, key record.Key, i *record.IPAM) error {
		return Release(ctx, key, i, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CNI_NETNS="}, stderr)
	}
}

// limitedWriter accepts a limited number of bytes.
type limitedWriter struct {
	w    io.Writer
	left int
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, fmt.Errorf("the output has more than %d bytes: %w", maxResult, errdefs.ErrResourceExhausted)
	}
	l.left -= len(p)
	return l.w.Write(p)
}

// lastLine stores the last non-empty line of its input, up to maxLine bytes.
type lastLine struct {
	line, last []byte
}

const maxLine = 4096

// Write keeps the last line that is not empty, of at most maxLine bytes.
func (l *lastLine) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b == '\n' && len(bytes.TrimSpace(l.line)) > 0:
			l.line, l.last = nil, l.line
		case b == '\n':
			l.line = nil
		case len(l.line) < maxLine:
			l.line = append(l.line, b)
		}
	}
	return len(p), nil
}

func (l *lastLine) String() string {
	line := bytes.TrimSpace(l.line)
	if len(line) == 0 {
		line = bytes.TrimSpace(l.last)
	}
	return string(line)
}

// newError returns an error of the IPAM plugin with its code. stderr is the last line of its
// standard error, where a crashing plugin reports the reason.
func newError(command, name string, out []byte, stderr string, err error) error {
	e := &types.Error{}
	if json.Unmarshal(out, e) == nil && e.Code != 0 {
		return types.NewError(e.Code, fmt.Sprintf("IPAM plugin %s: %s", name, diag.Plain(e.Msg)), diag.Plain(e.Details))
	}
	details := fmt.Sprintf("%s: %v", command, err) // not an error of CNI
	if len(out) > 0 {
		details += "; its standard output is " + diag.QuoteUpTo(string(out), diag.MaxExcerpt)
	}
	if stderr != "" {
		details += "; its last line on standard error is " + diag.QuoteUpTo(stderr, diag.MaxExcerpt)
	}
	return attach.Fail(types.ErrIOFailure, "IPAM plugin "+name+" failed", "%s", details)
}
