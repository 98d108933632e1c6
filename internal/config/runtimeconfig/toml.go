// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// Setting is a key of a configuration file with its value, or the header of a table. The zero value
// is a key that no file sets. The keys of an inline table are separate settings after the table's.
type Setting struct {
	Path    []string // tables and key, from the root of the document
	File    string
	Line    int
	Value   string   // a string without its quotation marks; anything else as written
	List    []string // the strings of an array
	Written string   // the value as written, shortened for messages

	isTable bool // a table's header, or an inline table
}

// IsSet reports whether a file sets the key.
func (s Setting) IsSet() bool { return s.Line > 0 }

// Place returns FILE:LINE.
func (s Setting) Place() string { return fmt.Sprintf("%s:%d", s.File, s.Line) }

// IsNot reports whether a file sets the key to a value other than the given one.
func (s Setting) IsNot(value string) bool { return s.IsSet() && s.Written != value }

// Settings are the effective settings by path.
type Settings map[string]Setting

func pathKey(path []string) string { return strings.Join(path, "\x00") }

// newSettings returns the settings of a document. The last setting of a path counts.
func newSettings(document []Setting) Settings {
	s := Settings{}
	for _, set := range document {
		if !set.isTable {
			s[pathKey(set.Path)] = set
		}
	}
	return s
}

// Get returns the setting of a key. The path consists of the tables and the key.
func (s Settings) Get(path ...string) Setting { return s[pathKey(path)] }

// Find returns the settings of a key in all tables below a path, sorted by their path.
func (s Settings) Find(key string, below ...string) []Setting {
	var out []Setting
	for _, set := range s {
		if last := len(set.Path) - 1; last > len(below) && set.Path[last] == key && hasPrefix(set.Path, below) {
			out = append(out, set)
		}
	}
	slices.SortFunc(out, func(a, b Setting) int { return slices.Compare(a.Path, b.Path) })
	return out
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

// parseTOML returns the settings and table headers of a document in its order.
func parseTOML(file, text string) ([]Setting, error) {
	r := tomlReader{file: file, text: text, line: 1}
	r.parser.Reset([]byte(text))
	var table []string
	for r.parser.NextExpression() {
		node := r.parser.Expression()
		if node.Kind == unstable.KeyValue {
			r.addKeyValue(table, node)
			continue
		}
		path, start, _ := r.readKey(node)
		if node.Kind == unstable.ArrayTable {
			// Each element of an array of tables gets a distinct path, because no caller searches
			// in them.
			path = append(path, fmt.Sprintf("[[%d]]", start))
		}
		table = path
		header := r.setting(path, start)
		header.isTable = true
		r.settings = append(r.settings, header)
	}
	err := r.parser.Error()
	if bad, ok := errors.AsType[*unstable.ParserError](err); ok {
		line := r.parser.Shape(r.parser.Range(bad.Highlight)).Start.Line
		return nil, fmt.Errorf("line %d: not valid TOML: %s: %w", line, bad.Message, errdefs.ErrInvalidArgument)
	}
	return r.settings, err
}

type tomlReader struct {
	file, text   string
	parser       unstable.Parser
	settings     []Setting
	line, offset int // of the setting that was read last
}

// setting returns the setting of a path at a place in the text. Places must increase from call to
// call.
func (r *tomlReader) setting(path []string, start int) Setting {
	r.line += strings.Count(r.text[r.offset:start], "\n")
	r.offset = start
	return Setting{Path: path, File: r.file, Line: r.line}
}

// readKey returns the dotted key of a node, and where it begins and ends.
func (r *tomlReader) readKey(node *unstable.Node) (path []string, start, end int) {
	for it := node.Key(); it.Next(); {
		part := it.Node()
		if path = append(path, string(part.Data)); len(path) == 1 {
			start = int(part.Raw.Offset)
		}
		end = int(part.Raw.Offset + part.Raw.Length)
	}
	return path, start, end
}

// addKeyValue adds a setting with its place in the file, which an editor of the file needs.
func (r *tomlReader) addKeyValue(table []string, node *unstable.Node) {
	key, _, keyEnd := r.readKey(node)
	start := keyEnd + strings.IndexByte(r.text[keyEnd:], '=') + 1
	start += len(r.text[start:]) - len(strings.TrimLeft(r.text[start:], " \t"))
	end := int(node.Raw.Offset + node.Raw.Length)
	path := slices.Concat(table, key)
	value := node.Value()
	set := r.setting(path, start)
	set.Value = r.text[start:end]
	set.Written = diag.Excerpt(set.Value, 64)
	switch value.Kind {
	case unstable.String:
		set.Value = string(value.Data)
	case unstable.Array:
		for it := value.Children(); it.Next(); {
			if item := it.Node(); item.Kind == unstable.String {
				set.List = append(set.List, string(item.Data))
			}
		}
	case unstable.InlineTable:
		set.isTable = true
	}
	r.settings = append(r.settings, set)
	if set.isTable {
		for it := value.Children(); it.Next(); {
			r.addKeyValue(path, it.Node())
		}
	}
}
