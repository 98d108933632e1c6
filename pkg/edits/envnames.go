// SPDX-License-Identifier: Apache-2.0

package edits

// EnvNames finds the variables of an environment by their names. The zero value is of
// an empty one.
type EnvNames struct {
	env []string
	// marks has a bit set for each variable's first two bytes: most names that an
	// environment lacks are told from it, without going through the environment.
	marks uint64
}

// NamesOf is of an environment of NAME=value, which must not change.
func NamesOf(env []string) EnvNames {
	n := EnvNames{env: env}
	for _, kv := range env {
		n.marks |= mark(kv)
	}
	return n
}

// Add says that a variable was appended to the environment, or another put in the
// place of one of its name, and the environment is env now.
func (n *EnvNames) Add(env []string, name string) {
	n.env = env
	n.marks |= mark(name)
}

// Last is the place of the last variable of a name, which is the one that counts, or
// -1. A text without "=" is a name, too.
func (n *EnvNames) Last(name string) int {
	if n.marks&mark(name) == 0 {
		return -1
	}
	l := len(name)
	for i := len(n.env) - 1; i >= 0; i-- {
		switch kv := n.env[i]; {
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
