// SPDX-License-Identifier: Apache-2.0

package edit

import "strings"

// Env is one environment variable.
type Env struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin Origin `json:"origin"`
}

// ParseEnv returns the variable of a text NAME=value.
func ParseEnv(text string, o Origin) Env {
	name, value, _ := strings.Cut(text, "=")
	return Env{Name: name, Value: value, Origin: o}
}

// key identifies the variable in a set.
func (e *Env) key() string { return e.Name }

// Text returns the variable as NAME=value.
func (e *Env) Text() string { return e.Name + "=" + e.Value }

// LastEnv returns the index of the last NAME=value entry for name, which is the entry that takes
// effect, or -1. An entry without "=" is a name.
func LastEnv(env []string, name string) int {
	for i := len(env) - 1; i >= 0; i-- {
		if rest, ok := strings.CutPrefix(env[i], name); ok && (rest == "" || rest[0] == '=') {
			return i
		}
	}
	return -1
}
