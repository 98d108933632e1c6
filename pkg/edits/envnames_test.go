// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"strings"
	"testing"
)

// FuzzEnvNames: as a search through all of the environment finds it.
func FuzzEnvNames(f *testing.F) {
	for _, env := range []string{"A=1\nA=2\nB=3", "AB=1\nA=2", "A\nB", "=1\n=2", "==", "\n", "NOTHING\nNOTHING=1", "A=\nAA", ""} {
		for _, name := range []string{"A", "AB", "", "=", "==", "NOTHING", "C"} {
			f.Add(env, name)
		}
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		env := strings.Split(text, "\n")
		last := func() int {
			for i := len(env) - 1; i >= 0; i-- {
				if env[i] == name || strings.HasPrefix(env[i], name+"=") {
					return i
				}
			}
			return -1
		}
		n := NamesOf(env)
		if got, want := n.Last(name), last(); got != want {
			t.Errorf("%q in %q: %d, want %d", name, env, got, want)
		}
		env = append(env, name+"=new")
		n.Grown(env)
		if got, want := n.Last(name), last(); got != want {
			t.Errorf("%q in %q: %d, want %d", name, env, got, want)
		}
	})
}
