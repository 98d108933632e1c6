// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"testing"

	"github.com/jackfield/jackfield/internal/port/attach"
)

// Whatever a plugin prints, its failure is an error of CNI with a code and a message.
func FuzzError(f *testing.F) {
	for _, out := range []string{"", "{}", `{"code":11,"msg":"full","details":"10.0.0.0/24"}`, `{"code":0}`, "panic: runtime error\n\tgoroutine 1", "\x1b[31m"} {
		f.Add([]byte(out))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		e := attach.AsError(newError("ADD", "host-local", out, string(out), errors.New("exit status 1")))
		if e == nil || e.Code == 0 || e.Msg == "" {
			t.Errorf("%.200q: %+v", out, e)
		}
	})
}
