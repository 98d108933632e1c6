// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/jackfield/jackfield/pkg/hook"
)

// runHook is jackfield-hook with a client of the kubelet, for which that starts this
// program: see hook.Full. It is no command for people.
func runHook(ctx context.Context, args []string, env Env) int {
	err := hook.Run(ctx, args, hook.Env{Stdin: env.Stdin, Stdout: env.Stdout, Kubelet: askKubelet})
	if err == nil {
		return ExitOK
	}
	hook.Fail(err)
	return ExitNo
}
