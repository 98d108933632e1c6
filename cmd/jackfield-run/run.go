// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/version"
	"github.com/jackfield/jackfield/pkg/devices"
)

// Exit statuses, with the values of env(1) where it defines them.
const (
	exitUsage       = 2
	exitFailed      = 125
	exitNotRunnable = 126
	exitNotFound    = 127
)

const usage = `jackfield-run starts a program in a container, with the arguments that its devices need. It
is for images without a shell. The program takes the place of jackfield-run.

Usage:
  jackfield-run [flags] PROGRAM [ARGUMENT...]

In an argument, jackfield-run replaces:
  $(JACKFIELD_EAL), alone        the EAL arguments of all devices
  $(JACKFIELD_NET1_EAL), alone   the EAL arguments of interface net1
  $(NAME)                        the value of the variable NAME
  $$(NAME)                       the text $(NAME)

Example:
  jackfield-run --wait=1m /usr/bin/fwd -l 2,3 '$(JACKFIELD_EAL)'

Flags:
  --remove-stale    remove sockets that the application creates and that a crash left behind
  --wait DURATION   wait at most this DURATION until the host serves all sockets that it
                    creates, such as 90s or 1m
  -h, --help        print this help
  --version         print the version

Exit status: that of the program; 2 mistake in the command line; 125 no devices, a missing
variable or a socket that is not served; 126 the program cannot be started; 127 the program
does not exist.
Learn more: jackfield-run(1), https://github.com/jackfield/jackfield
`

// helpHint ends an error in the command line.
const helpHint = "(run `jackfield-run --help`)"

// run returns only if there is no program to start, or if it could not be started.
func run(args []string) (status int, err error) {
	flags := flag.NewFlagSet("jackfield-run", flag.ContinueOnError)
	wait := flags.Duration("wait", 0, "")
	removeStale := flags.Bool("remove-stale", false, "")
	showVersion := flags.Bool("version", false, "")
	flags.SetOutput(io.Discard)
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
		return 0, nil
	case err != nil:
		return exitUsage, fmt.Errorf("%w %s", err, helpHint)
	case *showVersion:
		fmt.Println(version.Line("jackfield-run"))
		return 0, nil
	case flags.NArg() == 0:
		return exitUsage, errors.New("PROGRAM is missing " + helpHint)
	}
	argv, err := prepare(flags.Args(), *wait, *removeStale)
	if err != nil {
		return exitFailed, err
	}
	program, err := exec.LookPath(argv[0])
	if err == nil {
		err = &fs.PathError{Op: "exec", Path: program, Err: unix.Exec(program, argv, os.Environ())}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return exitNotFound, err
	}
	return exitNotRunnable, err
}

// prepare sets the environment and returns the program and its arguments.
func prepare(args []string, wait time.Duration, removeStale bool) ([]string, error) {
	list, err := devices.Read("")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the container has no devices from Jackfield: %w", err)
	}
	if err != nil {
		return nil, err
	}
	if removeStale {
		err = removeStaleSockets(list)
	}
	if err == nil && wait > 0 {
		err = waitForSockets(list, wait)
	}
	if err != nil {
		return nil, err
	}
	return expandArguments(list, args)
}
