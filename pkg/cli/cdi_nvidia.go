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
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

const (
	nvidiaTool = "nvidia-ctk"
	// nvidiaTimeout bounds nvidia-ctk, which queries the driver.
	nvidiaTimeout = time.Minute
	// maxToolMessages bounds the messages of nvidia-ctk that are kept, in bytes. Among many others, it logs each
	// library that it finds.
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
	var out specOutput
	var messages lastMessages
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	switch {
	case out.overflow:
		return nil, fmt.Errorf("run %q: it prints more than the %d bytes a CDI file may have: %w", tool, cdiregistry.DefaultMaxFileSize, errdefs.ErrInvalidArgument)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s: %w", nvidiaTimeout, errdefs.ErrUnavailable)
	case errors.Is(err, exec.ErrWaitDelay):
		err = fmt.Errorf("it ended, and left a program behind that can still print: %w", errdefs.ErrUnavailable)
	}
	if err == nil {
		return out.text, nil
	}
	err = fmt.Errorf("run %q: %w", tool+" cdi generate", err)
	if said := strings.TrimSpace(string(messages)); said != "" {
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

// specOutput keeps an output of at most the size of a CDI file. A program that prints more gets a broken pipe.
type specOutput struct {
	text     []byte
	overflow bool
}

func (o *specOutput) Write(p []byte) (int, error) {
	if o.overflow = len(o.text)+len(p) > cdiregistry.DefaultMaxFileSize; o.overflow {
		return 0, unix.EFBIG
	}
	o.text = append(o.text, p...)
	return len(p), nil
}

// lastMessages keeps the end of what is written, which says why a program failed.
type lastMessages []byte

func (m *lastMessages) Write(p []byte) (int, error) {
	*m = append(*m, p...)
	*m = (*m)[max(0, len(*m)-maxToolMessages):]
	return len(p), nil
}
