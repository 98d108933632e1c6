// SPDX-License-Identifier: Apache-2.0

package cli

import "strings"

// toml holds the plain values of a TOML file by section: what the doctor asks of a
// runtime's configuration, and no more. A value keeps its text without quotes; what
// goes on over several lines is joined.
type toml map[string]map[string]string

func (t toml) section(name string) map[string]string { return t[name] }

func readTOML(text string) toml {
	t := toml{"": {}}
	at, open, key := "", "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(uncomment(line))
		switch {
		case line == "":
		case open != "":
			open += line
			if strings.Count(open, "[") <= strings.Count(open, "]") {
				t[at][key], open = open, ""
			}
		case strings.HasPrefix(line, "["):
			at = strings.TrimSpace(strings.Trim(line, "[]"))
			at = strings.ReplaceAll(at, "'", `"`)
			if t[at] == nil {
				t[at] = map[string]string{}
			}
		default:
			k, v, ok := strings.Cut(line, "=")
			if !ok {
				continue
			}
			key, v = strings.Trim(strings.TrimSpace(k), `"'`), strings.TrimSpace(v)
			if strings.HasPrefix(v, "[") && strings.Count(v, "[") > strings.Count(v, "]") {
				open = v
				continue
			}
			if !strings.HasPrefix(v, "[") {
				v = strings.Trim(v, `"'`)
			}
			t[at][key] = v
		}
	}
	return t
}

// uncomment drops what follows a # outside of quotes.
func uncomment(line string) string {
	quote := byte(0)
	for i := range len(line) {
		switch c := line[i]; {
		case quote == 0 && c == '#':
			return line[:i]
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote && (quote == '\'' || i == 0 || line[i-1] != '\\'):
			quote = 0
		}
	}
	return line
}

// list is a list of strings.
func list(v string) []string {
	var out []string
	for _, s := range strings.Split(strings.Trim(v, "[]"), ",") {
		if s = strings.Trim(strings.TrimSpace(s), `"'`); s != "" {
			out = append(out, s)
		}
	}
	return out
}
