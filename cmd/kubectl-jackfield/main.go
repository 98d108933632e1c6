// SPDX-License-Identifier: Apache-2.0

// Command kubectl-jackfield is the plugin of kubectl: `kubectl jackfield explain POD`.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/jackfield/jackfield/internal/adapter/kubectl"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return kubectl.Run(ctx, os.Args[1:], kubectl.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv})
}
