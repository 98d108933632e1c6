// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

const nriPlugin = "io.containerd.nri.v1.nri"

// containerdWithNRI is containerd's configuration with NRI on and open to plugins that
// connect, and a line for each change; none is that it was so. All else stays, byte by byte. An empty text stands
// for a file that is not there.
func containerdWithNRI(text string) (string, []string, error) {
	statements, err := tomlStatements(text)
	if err != nil {
		return "", nil, err
	}
	if len(statements) == 0 {
		return joinLines(text, "version = 2\n\n[plugins.\""+nriPlugin+"\"]\n  disable = false\n"), []string{"plugins.\"" + nriPlugin + "\".disable = false, in a file of version 2"}, nil
	}
	version, table, dotted := "1", -1, false
	var disable, connections, disabled *tomlStatement
	in := []string{"plugins", nriPlugin}
	below := false // in a table of its own below NRI's, beside which NRI's own can stand
	for i := range statements {
		if st := &statements[i]; st.header {
			below = len(st.path) > 2 && slices.Equal(st.path[:2], in)
		}
		switch st := &statements[i]; {
		case !st.header && slices.Equal(st.path, []string{"version"}):
			version = st.value
		case !st.header && slices.Equal(st.path, []string{"disabled_plugins"}):
			disabled = st
		case st.header && slices.Equal(st.path, in):
			table = i
		case !st.header && slices.Equal(st.path, append(slices.Clone(in), "disable")):
			disable = st
		case !st.header && slices.Equal(st.path, append(slices.Clone(in), "disable_connections")):
			connections = st
			dotted = dotted || table < 0 && !below
		case !st.header && (slices.Equal(st.path, in) || slices.Equal(st.path, in[:1])):
			return "", nil, fmt.Errorf("%s is written as an inline table, which is not edited here; set disable = false in it: %w", strings.Join(st.path, "."), errdefs.ErrNotImplemented)
		case !st.header && len(st.path) > 2 && slices.Equal(st.path[:2], in) && table < 0 && !below:
			dotted = true
		}
	}
	if !slices.Contains([]string{"2", "3", "4"}, version) {
		return "", nil, fmt.Errorf("it is of version %s, want 2, 3 or 4; convert it with `containerd config migrate`: %w", version, errdefs.ErrNotImplemented)
	}
	var changes []string
	edit := func(start, end int, with, change string) {
		text = text[:start] + with + text[end:]
		changes = append(changes, change)
	}
	// From the end on, so that places before it stay right.
	type change struct {
		at int
		do func()
	}
	var todo []change
	switch {
	case disable != nil && disable.value == "true":
		todo = append(todo, change{disable.valueStart, func() {
			edit(disable.valueStart, disable.valueStart+len("true"), "false", "plugins.\""+nriPlugin+"\".disable = false")
		}})
	case disable != nil && disable.value != "false":
		return "", nil, fmt.Errorf("plugins.%q.disable: found %s, want true or false: %w", nriPlugin, shortText(disable.value), errdefs.ErrInvalidArgument)
	case disable != nil || version != "2":
		// On: containerd 2 has it so where the file does not say.
	case dotted:
		return "", nil, fmt.Errorf("%s is written with dotted keys, which are not added to here; set disable = false beside them: %w", strings.Join(in, "."), errdefs.ErrNotImplemented)
	case table >= 0:
		todo = append(todo, change{statements[table].end, func() {
			text = text[:statements[table].end] + joinLines("", endLine(text[:statements[table].end])+"  disable = false\n") + text[statements[table].end:]
			changes = append(changes, "plugins.\""+nriPlugin+"\".disable = false, which was not there")
		}})
	default:
		todo = append(todo, change{len(text), func() {
			text = joinLines(text, "\n[plugins.\""+nriPlugin+"\"]\n  disable = false\n")
			changes = append(changes, "plugins.\""+nriPlugin+"\".disable = false, at the end")
		}})
	}
	switch {
	case connections == nil || connections.value == "false":
	case connections.value != "true":
		return "", nil, fmt.Errorf("plugins.%q.disable_connections: found %s, want true or false: %w", nriPlugin, shortText(connections.value), errdefs.ErrInvalidArgument)
	default:
		todo = append(todo, change{connections.valueStart, func() {
			edit(connections.valueStart, connections.valueStart+len("true"), "false", "plugins.\""+nriPlugin+"\".disable_connections = false")
		}})
	}
	if disabled != nil {
		element := regexp.MustCompile(`(?:"` + regexp.QuoteMeta(nriPlugin) + `"|'` + regexp.QuoteMeta(nriPlugin) + `')[ \t]*,?[ \t]*`)
		if value := element.ReplaceAllString(disabled.value, ""); value != disabled.value {
			todo = append(todo, change{disabled.valueStart, func() {
				edit(disabled.valueStart, disabled.valueStart+len(disabled.value), value, "disabled_plugins: without "+nriPlugin)
			}})
		}
	}
	slices.SortFunc(todo, func(a, b change) int { return b.at - a.at })
	for _, c := range todo {
		c.do()
	}
	return text, changes, nil
}

// joinLines puts text behind what may not end with its line.
func joinLines(before, text string) string { return before + endLine(before) + text }

func endLine(before string) string {
	if before == "" || strings.HasSuffix(before, "\n") {
		return ""
	}
	return "\n"
}

func shortText(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
