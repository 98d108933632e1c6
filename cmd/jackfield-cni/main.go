// SPDX-License-Identifier: Apache-2.0

// Command jackfield-cni is the CNI plugin.
package main

import (
	"context"
	"os"

	"github.com/jackfield/jackfield/internal/adapter/cni"
)

// main does not handle signals: a runtime that stops waiting kills its plugins, and a DEL undoes
// their partial work.
func main() {
	p := cni.Plugin{Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := p.Run(context.Background()); err != nil {
		os.Exit(1)
	}
}
