// SPDX-License-Identifier: Apache-2.0

package edits

// EnvNames finds the variables of an environment by their names. The zero value is of
// an empty one.
type EnvNames struct {
	env    []string
	marked int // how many of env are in marks
	// marks has a bit set for each variable's first two bytes: most names that an
	// environment lacks are told from it, without going through the environment.
	marks uint64
}

// NamesOf is of an environment of NAME=value. Its names must not change.
func NamesOf(env []string) EnvNames {
	n := EnvNames{env: env, marked: len(env)}
	for _, kv := range env {
		n.marks |= mark(kv)
	}
	return n
}

// Grown says that variables were appended to the environment, which is env now.
func (n *EnvNames) Grown(env []string) { n.env = env }

// Last is the place of the last variable of a name, which is the one that counts, or
// -1. A text without "=" is a name, too.
func (n *EnvNames) Last(name string) int {
	// What was appended is little, and often called like the name.
	if i := last(n.env[n.marked:], name); i >= 0 {
		return n.marked + i
	}
	if n.marks&mark(name) == 0 {
		return -1
	}
	return last(n.env[:n.marked], name)
}

func last(env []string, name string) int {
	l := len(name)
	for i := len(env) - 1; i >= 0; i-- {
		switch kv := env[i]; {
		case len(kv) <= l:
			if kv == name {
				return i
			}
		case kv[l] == '=' && kv[:l] == name:
			return i
		}
	}
	return -1
}

// mark is the bit of a name, or of a variable of that name.
func mark(s string) uint64 {
	a, b := byte('='), byte('=') // what follows a name in a variable
	if len(s) > 0 {
		a = s[0]
	}
	if len(s) > 1 && a != '=' {
		b = s[1]
	}
	return 1 << ((a*7 + b) % 64)
}
