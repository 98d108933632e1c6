// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/version"
)

// arguments reads the command line: flags with one or two dashes, as package flag has
// them, and the stage behind them. done is for --help and --version.
func (h *hook) arguments(args []string) (done bool, err error) {
	stage, showVersion := "", false
	valued := func(name string) *string {
		switch name {
		case "config":
			return &h.configFile
		case "log":
			return &h.logTo
		case "stage":
			return &stage
		case "container-id":
			return &h.containerID
		}
		return nil
	}
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			break
		}
		name, value, joined := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		switch to := valued(name); {
		case to != nil && !joined && len(args) == 0:
			return false, fmt.Errorf("%s: found nothing behind it, want a value: %w", arg, errdefs.ErrInvalidArgument)
		case to != nil && !joined:
			*to, args = args[0], args[1:]
		case to != nil:
			*to = value
		case name == "version" && !joined:
			showVersion = true
		case (name == "help" || name == "h") && !joined:
			_, err := io.WriteString(h.env.Stdout, usage)
			return true, err
		default:
			return false, fmt.Errorf("found %q, want --config, --log, --stage, --container-id, --version or --help: %w", arg, errdefs.ErrInvalidArgument)
		}
	}
	if showVersion {
		_, err := fmt.Fprintln(h.env.Stdout, version.Line("jackfield-hook"))
		return true, err
	}
	switch {
	case len(args) == 1 && stage == "":
		stage = args[0]
	case len(args) > 0:
		return false, fmt.Errorf("found %q, want one stage and nothing behind it: %w", args, errdefs.ErrInvalidArgument)
	}
	h.stage = Stage(stage)
	if known := []Stage{"", Precreate, CreateRuntime, Prestart, Poststop}; !slices.Contains(known, h.stage) {
		return false, fmt.Errorf("stage: found %q, want precreate, createRuntime, prestart or poststop: %w", stage, errdefs.ErrInvalidArgument)
	}
	return false, nil
}
