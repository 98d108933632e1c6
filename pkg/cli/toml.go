// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"strings"
)

// toml holds the values of a TOML document by table: what the doctor asks of a
// runtime's configuration. A string is there without its quotation marks, anything
// else as it is written.
type toml map[string]map[string]string

// section is the table of a path, nil where nothing is in it.
func (t toml) section(path ...string) map[string]string { return t[strings.Join(path, "\x00")] }

func readTOML(text string) (toml, error) {
	statements, err := tomlStatements(text)
	t := toml{}
	for _, st := range statements {
		if st.header {
			continue
		}
		last := len(st.path) - 1
		table := strings.Join(st.path[:last], "\x00")
		if t[table] == nil {
			t[table] = map[string]string{}
		}
		t[table][st.path[last]] = unquoteTOML(st.value)
	}
	return t, err
}

// unquoteTOML is what a string says; any other value is as it is written.
func unquoteTOML(v string) string {
	for _, quote := range []string{`"""`, `'''`, `"`, `'`} {
		if len(v) < 2*len(quote) || !strings.HasPrefix(v, quote) || !strings.HasSuffix(v, quote) {
			continue
		}
		if quote == `"` {
			if s, err := strconv.Unquote(v); err == nil {
				return s
			}
		}
		return v[len(quote) : len(v)-len(quote)]
	}
	return v
}

// list is the strings of an array as it is written.
func list(v string) []string {
	if !strings.HasPrefix(v, "[") {
		return nil
	}
	var out []string
	for s := (tomlScanner{text: v, i: 1}); ; {
		s.blank(true)
		switch {
		case s.i == len(v) || v[s.i] == ']':
			return out
		case v[s.i] == ',':
			s.i++
			continue
		}
		start := s.i
		if s.value(0) != nil {
			return out
		}
		if v[start] == '"' || v[start] == '\'' {
			out = append(out, unquoteTOML(v[start:s.i]))
		}
	}
}
