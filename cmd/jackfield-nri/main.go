// SPDX-License-Identifier: Apache-2.0

// Command jackfield-nri is the NRI plugin daemon.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackfield/jackfield/nri"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := nri.Command(os.Getenv, os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "jackfield-nri:", err)
		return 1
	}
	return 0
}
