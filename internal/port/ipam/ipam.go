// SPDX-License-Identifier: Apache-2.0

package cni

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
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/network"
	"github.com/jackfield/jackfield/internal/port/record"
)

const maxResult = 4 << 20

// nestedMark is set in the environment of IPAM plugins. Without it, an IPAM plugin that runs this
// plugin would recurse without end.
const nestedMark = "JACKFIELD_CNI_NESTED"

// runIPAM runs the IPAM plugin until ctx ends, with this plugin's configuration and environment
// (§4, Delegated plugin protocol), and returns its output. command can differ from the current
// operation, to undo a failed ADD. more holds further parameters, NAME=value. The invoke package of
// containernetworking/cni is not used, because it links OpenTelemetry.
func (c *call) runIPAM(ctx context.Context, command string, more ...string) ([]byte, error) {
	name, dirs := c.conf.IPAMType, c.getenv("CNI_PATH")
	if dirs == "" {
		return nil, attach.Fail(codeEnvironment, "required environment variables missing: CNI_PATH",
			"ipam.type %q must be in one of its directories", name)
	}
	file := findPlugin(name, dirs)
	if file == "" {
		return nil, c.missingIPAM()
	}
	var out bytes.Buffer
	said := &lastLine{}
	// The kernel returns ETXTBSY while the executable is being replaced.
	isBusy := func(err error) bool { return errors.Is(err, unix.ETXTBSY) }
	limit, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := retry.Every(200*time.Millisecond).Do(limit, isBusy, func() error {
		cmd := exec.CommandContext(ctx, file)
		// When ctx ends, the plugin's children end with it.
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
		cmd.WaitDelay = time.Second
		// of each name, the last one counts // the last entry of each name takes effect
		cmd.Env = slices.Concat(c.Environ, more, []string{"CNI_COMMAND=" + command, nestedMark + "=1"})
		cmd.Stdin, cmd.Stdout = strings.NewReader(c.conf.Text), &limitedWriter{&out, maxResult}
		cmd.Stderr = io.MultiWriter(c.Stderr, said)
		return cmd.Run()
	})
	if err != nil && ctx.Err() != nil {
		return nil, attach.Fail(types.ErrTryAgainLater, "IPAM plugin "+name+" timed out",
			"%s exceeded the time limit of the operation", command)
	}
	if err != nil {
		return nil, ipamError(command, name, out.Bytes(), said.String(), err)
	}
	return out.Bytes(), nil
}

// missingIPAM returns the error for an IPAM plugin that is not installed.
func (c *call) missingIPAM() error {
	return c.conf.Invalid("ipam.type", diag.Quote(c.conf.IPAMType), "an executable in CNI_PATH, "+c.getenv("CNI_PATH"))
}

// recordedIPAM returns the configuration's IPAM plugin for the record; nil for none.
func (c *call) recordedIPAM() *record.IPAM {
	if c.conf.IPAMType == "" {
		return nil
	}
	i := &record.IPAM{Type: c.conf.IPAMType, Path: c.getenv("CNI_PATH"), Args: c.getenv("CNI_ARGS")}
	if len(c.conf.Text) <= record.MaxIPAMConfig {
		i.Config = json.RawMessage(c.conf.Text)
	}
	return i
}

// ReleaseRecorded runs DEL of the IPAM plugin in a record, with the same parameters as its ADD.
// environ is the environment of the process.
func ReleaseRecorded(ctx context.Context, key record.Key, i *record.IPAM, environ []string, stderr io.Writer) error {
	conf, err := network.ParseHeader(i.Config)
	if err != nil {
		return err
	}
	conf.IPAMType = i.Type
	p := &Plugin{Stderr: stderr, Environ: slices.Concat(environ,
		[]string{"CNI_CONTAINERID=" + key.ContainerID, "CNI_IFNAME=" + key.Interface,
			"CNI_NETNS=", "CNI_PATH=" + i.Path, "CNI_ARGS=" + i.Args})}
	_, err = (&call{Plugin: p, ctx: ctx, conf: conf, version: conf.Version}).runIPAM(ctx, "DEL")
	return err
}

// ReleaseQuietly is ReleaseRecorded with the system's PATH, for a caller that only prints the
// error.
func ReleaseQuietly(ctx context.Context, key record.Key, i *record.IPAM) error {
	return ReleaseRecorded(ctx, key, i, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, io.Discard)
}

// findPlugin returns the path of an executable in a list of directories, or "".
func findPlugin(name, dirs string) string {
	if name == "" {
		return ""
	}
	for _, dir := range filepath.SplitList(dirs) {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); dir != "" && err == nil && st.Mode().IsRegular() {
			return file
		}
	}
	return ""
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

// ipamError returns an error of the IPAM plugin with its code. stderr is the last line of its
// standard error, where a crashing plugin reports the reason.
func ipamError(command, name string, out []byte, stderr string, err error) error {
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
	return attach.Fail(codeIO, "IPAM plugin "+name+" failed", "%s", details)
}

// allocateAddresses runs ADD of the IPAM plugin. After a failure it runs DEL, so that no address stays allocated.
func (c *call) allocateAddresses(ctx context.Context) (*types100.Result, error) {
	out, err := c.runIPAM(ctx, "ADD")
	var result *types100.Result
	if err == nil {
		result, err = c.parseLease(out)
	}
	if err != nil {
		if _, undo := c.runIPAM(c.ctx, "DEL"); undo != nil {
			fmt.Fprintf(c.Stderr, "jackfield-cni: undo IPAM: %v\n", undo)
		}
		return nil, err
	}
	return result, nil
}

// parseLease parses the result of the IPAM plugin's ADD, which must have the requested addresses.
func (c *call) parseLease(out []byte) (*types100.Result, error) {
	result, err := parseResultText(out, c.version)
	if err != nil {
		return nil, attach.Fail(codeDecode, "failed to decode the result of IPAM plugin "+c.conf.IPAMType,
			"%s; its standard output is %s",
			diag.Excerpt(decodeProblem(err), diag.MaxExcerpt), diag.QuoteUpTo(string(out), diag.MaxExcerpt))
	}
	if len(result.IPs) == 0 {
		return nil, attach.Fail(codeConfig, "IPAM plugin "+c.conf.IPAMType+" assigned no address",
			"its result has no ips")
	}
	if ip := missingAddress(c.conf.Runtime.IPs, result); ip != "" {
		return nil, c.conf.Unsupported("IPAM plugin "+c.conf.IPAMType+" does not assign "+ip, "runtimeConfig.ips")
	}
	if c.conf.Args.IPs == nil && missingAddress(c.ips, result) != "" {
		return nil, c.environment("CNI_ARGS", "IP must be an address that IPAM plugin "+c.conf.IPAMType+" assigns")
	}
	return result, nil
}
