// SPDX-License-Identifier: Apache-2.0

// Command jackfield explains, validates and shows.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackfield/jackfield/pkg/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, os.Args[1:], cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv})
}
