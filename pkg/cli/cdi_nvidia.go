// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

const (
	nvidiaTool = "nvidia-ctk"
	// nvidiaTimeout bounds nvidia-ctk, which queries the driver.
	nvidiaTimeout = time.Minute
	// maxToolMessages bounds the messages of nvidia-ctk that are kept, in bytes.
	maxToolMessages = 4 << 10
)

// runNvidiaCTK returns the output of `nvidia-ctk cdi generate`.
func runNvidiaCTK(ctx context.Context, env Env) ([]byte, error) {
	search := env.Getenv("PATH")
	tool, ok := lookPath(search, nvidiaTool)
	if !ok {
		return nil, &hintedError{
			err: fmt.Errorf("find %q: it is in no absolute directory of PATH: %w", nvidiaTool, errdefs.ErrNotFound),
			hint: "install the NVIDIA Container Toolkit: the package nvidia-container-toolkit-base of NVIDIA's repository has nvidia-ctk; " +
				"the NVIDIA driver must be installed as well",
		}
	}
	ctx, cancel := context.WithTimeout(ctx, nvidiaTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "cdi", "generate")
	// The caller's environment must not decide what is written for root to run.
	cmd.Env = []string{"PATH=" + search, "HOME=/", "LANG=C.UTF-8"}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	out := &limitedBuffer{max: cdiregistry.DefaultMaxFileSize, stop: cancel}
	messages := &limitedBuffer{max: maxToolMessages}
	cmd.Stdout, cmd.Stderr = out, messages
	err := cmd.Run()
	switch {
	case out.more:
		return nil, fmt.Errorf("run %q: it prints more than the %d bytes a CDI file may have: %w", tool, out.max, errdefs.ErrInvalidArgument)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s: %w", nvidiaTimeout, errdefs.ErrUnavailable)
	case errors.Is(err, exec.ErrWaitDelay):
		err = fmt.Errorf("it ended, and left a program behind that can still print: %w", errdefs.ErrUnavailable)
	}
	if err == nil {
		return out.text, nil
	}
	err = fmt.Errorf("run %q: %w", tool+" cdi generate", err)
	if said := strings.TrimSpace(string(messages.text)); said != "" {
		err = fmt.Errorf("%w; it says:\n%s", err, said)
	}
	return nil, err
}

// lookPath finds a program in the absolute directories of a search path. An administrator installs
// nothing in the current directory.
func lookPath(search, name string) (string, bool) {
	for _, dir := range filepath.SplitList(search) {
		if file, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(dir) {
			return file, true
		}
	}
	return "", false
}

// limitedBuffer keeps the first max bytes that are written, and calls stop at the next one.
type limitedBuffer struct {
	text []byte
	max  int
	more bool
	stop func()
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	room := b.max - len(b.text)
	b.text = append(b.text, p[:min(room, len(p))]...)
	if len(p) <= room {
		return len(p), nil
	}
	b.more = true
	if b.stop != nil {
		b.stop()
	}
	return len(p), nil
}
