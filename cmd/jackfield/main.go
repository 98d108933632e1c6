// SPDX-License-Identifier: Apache-2.0

// Command jackfield explains which devices and sockets containers receive, validates files, and
// shows the node's inventory. As `jackfield oci-hook` it is jackfield-hook with a kubelet client.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/internal/adapter/hook"
	"github.com/jackfield/jackfield/internal/source/kubelet"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == hook.FullCommand {
		return runHook(ctx, os.Args[2:])
	}
	return cli.Run(ctx, os.Args[1:], cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv})
}

func runHook(ctx context.Context, args []string) int {
	err := hook.Run(ctx, args, hook.Env{Stdin: os.Stdin, Stdout: os.Stdout, Self: hookProgram,
		Kubelet: kubelet.QueryPod, Pods: kubelet.QueryPodObject})
	if err != nil {
		hook.PrintError(err)
	}
	return hook.ExitStatus(err)
}

// hookProgram returns the path of jackfield-hook, which is installed beside this program.
func hookProgram() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "jackfield-hook"), err
}
