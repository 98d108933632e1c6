// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"path/filepath"

	"github.com/jackfield/jackfield/pkg/hook"
)

// runHook is jackfield-hook with a client of the kubelet, for which that starts this
// program: see hook.Full. It is no command for people.
func runHook(ctx context.Context, args []string, env Env) int {
	err := hook.Run(ctx, args, hook.Env{Stdin: env.Stdin, Stdout: env.Stdout, Self: besideThis, Kubelet: askKubelet})
	if err == nil {
		return ExitOK
	}
	hook.Fail(err)
	return ExitNo
}

// besideThis is jackfield-hook, which is where this program is.
func besideThis() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "jackfield-hook"), err
}
