// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/jackfield/jackfield/internal/base/version"
)

const usage = `jackfield-hook is an OCI hook. The runtime describes a container on standard input. The
hook delivers the devices and sockets that the container's annotations request and the
node's policy grants.

Usage:
  jackfield-hook [flags] [STAGE]

STAGE is precreate, createRuntime, prestart or poststop. Without STAGE, the hook derives
it from standard input: an OCI configuration means precreate, the state of a stopped
container means poststop, any other state means createRuntime.

Flags:
  --config FILE       configuration file, an absolute path
                      (default /etc/jackfield/config.yaml, when it exists)
  --container-id ID   name of the container's state on the host
  --log FILE|syslog   file to append to, or /dev/log
  --stage STAGE       the same as STAGE
  -h, --help          print this help
  --version           print the version

Exit status: 0 delivered, or nothing to do; 1 the container must not start; 2 mistake in
the command line.
Learn more: jackfield-hook(8), https://github.com/jackfield/jackfield
`

// Stage is a point in a container's life at which a runtime runs the hook.
type Stage string

// The stages. Only Podman and Buildah support Precreate.
const (
	Precreate     Stage = "precreate"
	CreateRuntime Stage = "createRuntime"
	Prestart      Stage = "prestart"
	Poststop      Stage = "poststop"
)

// commandLine returns args with this hook's flags, for a container and stage.
func (h *hook) commandLine(args []string, containerID string, stage Stage) []string {
	for _, f := range []struct{ name, value string }{{"--container-id", containerID}, {"--config", h.configFile},
		{"--log", h.logTo}} {
		if f.value != "" {
			args = append(args, f.name, f.value)
		}
	}
	return append(args, string(stage))
}

// parseFlags parses the command line: flags, then the stage. done is true after --help or
// --version, whose output parseFlags has printed.
func (h *hook) parseFlags(args []string) (done bool, err error) {
	f := flag.NewFlagSet("jackfield-hook", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&h.configFile, "config", "", "")
	f.StringVar(&h.logTo, "log", "", "")
	f.StringVar(&h.containerID, "container-id", "", "")
	stage := f.String("stage", "", "")
	showVersion := f.Bool("version", false, "")
	err = f.Parse(args)
	// --help and --version print their text without a valid stage. The stage can be an argument, as in the
	// examples of oci-hooks(5), or the value of --stage.
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(h.env.Stdout, usage)
		return true, err
	case err != nil:
		return false, usagef("%w", err)
	case *showVersion:
		_, err := fmt.Fprintln(h.env.Stdout, version.Line("jackfield-hook"))
		return true, err
	case f.NArg() == 1 && *stage == "":
		*stage = f.Arg(0)
	case f.NArg() > 0:
		return false, usagef("invalid arguments %q: must be one stage at most", f.Args())
	}
	h.stage = Stage(*stage)
	if known := []Stage{"", Precreate, CreateRuntime, Prestart, Poststop}; !slices.Contains(known, h.stage) {
		return false, usagef("invalid stage %q: must be precreate, createRuntime, prestart or poststop", *stage)
	}
	return false, nil
}
