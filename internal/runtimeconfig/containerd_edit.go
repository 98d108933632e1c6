// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Change is what turns NRI on in a runtime's configuration.
type Change struct {
	File          string   // to change; where nothing is to be changed, the file that has NRI on
	Before, After string   // of the file; Before is "" for a file that does not exist
	Missing       []string // files that the configuration imports and that do not exist
}

// Needed reports whether the file has to be changed.
func (c *Change) Needed() bool { return c.Before != c.After }

// EnableContainerdNRI returns the change of a file of containerd's configuration. It is an error
// where an imported file keeps NRI off, whatever the main file says.
func EnableContainerdNRI(host hostfs.Root, file string) (*Change, error) {
	conf, err := ReadContainerd(Files{Host: host}, file)
	if errdefs.IsNotFound(err) {
		conf, err = &Containerd{files: []containerdFile{{name: file}}}, nil
	}
	if err != nil {
		return nil, err
	}
	main := &conf.files[0]
	change := &Change{File: file, Before: main.text, Missing: conf.Missing}
	if change.After, err = containerdWithNRI(main.text); err != nil {
		return nil, err
	}
	if conf.NRIOn() {
		change.After = change.Before
		if disable := conf.NRIDisable(); disable.IsSet() {
			change.File = disable.File
		}
		return change, nil
	}
	if main.document, err = parseTOML(file, change.After); err != nil {
		return nil, err
	}
	conf.mergeFiles()
	return change, conf.overrides()
}

// overrides is the error of imported files that keep NRI off.
func (c *Containerd) overrides() error {
	main := c.files[0].name
	var todo, files []string
	add := func(by Setting, what string) {
		if by.File == main {
			return
		}
		todo = append(todo, by.Place()+": "+what)
		if !slices.Contains(files, by.File) {
			files = append(files, by.File)
		}
	}
	if s := c.NRIDisable(); s.IsNot("false") {
		add(s, "set disable = false, where it has "+s.Written)
	}
	if s := c.ShadowedBy(); s.IsSet() {
		add(s, "set disable = false in this [plugins.\""+NRIPlugin+"\"], too: containerd 1.7 takes the table whole from the last file that has it")
	}
	if s := c.NRIConnections(); s.IsNot("false") {
		add(s, "set disable_connections = false, where it has "+s.Written)
	}
	for _, s := range c.DisabledBy {
		add(s, "take "+NRIPlugin+" out of disabled_plugins")
	}
	if len(todo) == 0 {
		return nil
	}
	return fmt.Errorf("an imported file keeps NRI off and takes precedence; nothing is changed:\n- %s\nedit it by hand, or give --config %s: %w",
		strings.Join(todo, "\n- "), strings.Join(files, ", then --config "), errdefs.ErrFailedPrecondition)
}

const containerdNRIOn = "[plugins.\"" + NRIPlugin + "\"]\n  disable = false\n"

// containerdWithNRI returns a file of containerd's configuration with NRI on and open to plugins
// that connect. All other bytes stay.
func containerdWithNRI(text string) (string, error) {
	document, err := parseTOML("", text)
	if err != nil {
		return "", err
	}
	if len(document) == 0 {
		return text + lineEnd(text) + "version = 2\n\n" + containerdNRIOn, nil
	}
	set := newSettings(document)
	version := cmp.Or(set.Get("version").Written, "1")
	if !slices.Contains([]string{"2", "3", "4"}, version) {
		return "", fmt.Errorf("it is of version %s, want 2, 3 or 4; convert it with `containerd config migrate`: %w", version, errdefs.ErrNotImplemented)
	}
	table, isDotted, err := findNRITable(document)
	if err != nil {
		return "", err
	}
	var edits []textEdit
	for _, key := range [][]string{nriDisable, nriConnection} {
		switch s := set.Get(key...); {
		case s.IsNot("false") && s.IsNot("true"):
			return "", fmt.Errorf("plugins.%q.%s: found %s, want true or false: %w", NRIPlugin, key[2], s.Written, errdefs.ErrInvalidArgument)
		case s.IsNot("false"):
			edits = append(edits, textEdit{s.start, s.end, "false"})
		}
	}
	switch {
	case set.Get(nriDisable...).IsSet() || version != "2":
		// containerd 2 has NRI on where the file does not say.
	case isDotted:
		return "", fmt.Errorf("%s is written with dotted keys, which are not added to here; set disable = false beside them: %w", strings.Join(nriTable, "."), errdefs.ErrNotImplemented)
	case table.IsSet():
		end := table.end
		edits = append(edits, textEdit{end, end, lineEnd(text[:end]) + "  disable = false\n"})
	default:
		edits = append(edits, textEdit{len(text), len(text), lineEnd(text) + "\n" + containerdNRIOn})
	}
	for _, e := range set.Get("disabled_plugins").elements {
		if e.text == NRIPlugin {
			rest := strings.TrimLeft(text[e.end:], " \t")
			rest = strings.TrimLeft(strings.TrimPrefix(rest, ","), " \t")
			edits = append(edits, textEdit{e.start, len(text) - len(rest), ""})
		}
	}
	return applyEdits(text, edits), nil
}

// findNRITable returns the header of NRI's own table, and whether keys of NRI stand outside of it.
func findNRITable(document []Setting) (table Setting, isDotted bool, err error) {
	below := false // in a table of its own below NRI's, beside which NRI's own can stand
	for _, set := range document {
		if set.isTable && !set.isInline {
			below = len(set.Path) > 2 && hasPrefix(set.Path, nriTable)
		}
		switch {
		case set.isInline && (slices.Equal(set.Path, nriTable) || slices.Equal(set.Path, nriTable[:1])):
			return table, false, fmt.Errorf("%s is written as an inline table, which is not edited here; set disable = false in it: %w", strings.Join(set.Path, "."), errdefs.ErrNotImplemented)
		case set.isTable && slices.Equal(set.Path, nriTable):
			table = set
		}
		isDotted = isDotted || !set.isTable && hasPrefix(set.Path, nriTable) && !table.IsSet() && !below
	}
	return table, isDotted, nil
}

// textEdit replaces a range of a text.
type textEdit struct {
	start, end int
	text       string
}

func applyEdits(text string, edits []textEdit) string {
	// From the end, so that earlier offsets stay valid.
	slices.SortFunc(edits, func(a, b textEdit) int { return b.start - a.start })
	for _, e := range edits {
		text = text[:e.start] + e.text + text[e.end:]
	}
	return text
}

// lineEnd is the line end that a text lacks.
func lineEnd(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return ""
	}
	return "\n"
}
