// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
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
	return tomlTables(flat(statements)), err
}

// tomlTables holds the values of statements.
func tomlTables(statements []tomlStatement) toml {
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
	return t
}

// flat has the keys of inline tables as statements of their own, behind a header each.
func flat(statements []tomlStatement) []tomlStatement {
	out := make([]tomlStatement, 0, len(statements))
	for _, st := range statements {
		if st.header || !strings.HasPrefix(st.value, "{") {
			out = append(out, st)
			continue
		}
		out = append(out, tomlStatement{path: st.path, header: true, end: st.end, valueStart: st.valueStart})
		var in []tomlStatement
		for s := (tomlScanner{text: st.value, i: 1}); ; {
			s.blank(true)
			if s.i == len(s.text) || s.text[s.i] == '}' {
				break
			}
			if s.text[s.i] == ',' {
				s.i++
				continue
			}
			keys, err := s.keys()
			if err != nil || s.i == len(s.text) || s.text[s.i] != '=' {
				break // the runtime refuses it
			}
			s.i++
			s.blank(false)
			start := s.i
			if s.value(0) != nil {
				break
			}
			in = append(in, tomlStatement{path: append(slices.Clone(st.path), keys...), end: st.end,
				value: strings.TrimSpace(s.text[start:s.i]), valueStart: st.valueStart + start})
		}
		out = append(out, flat(in)...)
	}
	return out
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
