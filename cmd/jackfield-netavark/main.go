// SPDX-License-Identifier: Apache-2.0

// Command jackfield-netavark is the netavark plugin, for networks of Podman 5 and later.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackfield/jackfield/internal/adapter/netavark"
)

// main does not handle signals: a teardown removes the objects of a killed setup.
func main() {
	p := netavark.Plugin{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	err := p.Run(context.Background())
	var usage *netavark.UsageError
	switch {
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "jackfield-netavark:", err)
		os.Exit(2)
	case err != nil:
		os.Exit(1)
	}
}
