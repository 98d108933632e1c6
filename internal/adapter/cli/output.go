// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// Formats of -o. Text is for people; wide is text with more columns, for some commands.
const (
	formatText = "text"
	formatJSON = "json"
	formatYAML = "yaml"
	formatWide = "wide"
)

// output is how a command prints its result.
type output struct {
	format string // of -o
	color  string // of --color
}

// addFlag adds -o with text, json, yaml and more formats, and --color.
func (o *output) addFlag(cmd *cobra.Command, more ...string) {
	addChoice(cmd, &o.format, "output", "o", "`format`", append([]string{formatText, formatJSON, formatYAML}, more...)...)
	addChoice(cmd, &o.color, "color", "", "`when` text has colours (auto: on a terminal, without NO_COLOR)", colorAuto,
		colorAlways, colorNever)
}

// addNamespaceFlag adds -n, the namespace of pods.
func addNamespaceFlag(cmd *cobra.Command, value *string, pods string) {
	cmd.Flags().StringVarP(value, "namespace", "n", "", "the `namespace` of "+pods)
}

// addWatchFlag adds -w. form is how changes are printed.
func addWatchFlag(cmd *cobra.Command, value *bool, form string) {
	cmd.Flags().BoolVarP(value, "watch", "w", false, "print changes until interrupted: "+form)
}

// choice is a pflag.Value that is one of several words.
type choice struct {
	value *string
	words []string
}

// addChoice adds a flag whose value is one of several words. The first one is the default.
func addChoice(cmd *cobra.Command, value *string, name, short, usage string, words ...string) {
	*value = words[0]
	cmd.Flags().VarP(choice{value, words}, name, short, usage+": "+joinWords(words))
	completeFlag(cmd, name, fixedValues(words...))
}

// joinWords lists words as in "a, b or c".
func joinWords(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func (c choice) String() string {
	if c.value == nil { // pflag asks a zero value, too
		return ""
	}
	return *c.value
}

func (c choice) Type() string { return "string" }

func (c choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return errors.New("must be " + joinWords(c.words))
	}
	*c.value = word
	return nil
}

// isText reports whether the output is for people.
func (o *output) isText() bool { return o.format == formatText || o.format == formatWide }

// writeResult writes v as JSON or YAML, or its text, whichever -o says.
func (o *output) writeResult(env Env, v any, text func() string) error {
	if o.isText() {
		out := text()
		if !o.isColored(env) {
			out = removeColors(out)
		}
		_, err := io.WriteString(env.Stdout, out)
		return err
	}
	value := reflect.New(reflect.TypeOf(v)).Elem()
	value.Set(reflect.ValueOf(v))
	makeLists(value)
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value.Interface()); err != nil {
		return err
	}
	if o.format == formatYAML {
		return writeYAML(env.Stdout, &data)
	}
	_, err := data.WriteTo(env.Stdout)
	return err
}

// makeLists makes nil lists in a value empty, so that scripts read [] and not null.
func makeLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			makeLists(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				makeLists(field)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // text
		}
		if v.IsNil() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			makeLists(v.Index(i))
		}
	}
}

// writeYAML writes JSON as YAML, with the keys in their order.
func writeYAML(w io.Writer, data io.Reader) error {
	dec := json.NewDecoder(data)
	dec.UseNumber()
	node, err := readYAMLNode(dec)
	if err != nil {
		return err
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	return errors.Join(enc.Encode(node), enc.Close())
}

// readYAMLNode reads one JSON value. In an object, keys and values alternate, as in a node of YAML.
func readYAMLNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if v == '{' {
			node.Kind = yaml.MappingNode
		}
		for dec.More() {
			child, err := readYAMLNode(dec)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := dec.Token() // the end of the object or array
		return node, err
	case string:
		if strings.HasPrefix(v, "\t") { // Encode writes several lines as a block, which must not begin with a tab
			return &yaml.Node{Kind: yaml.ScalarNode, Value: v, Style: yaml.DoubleQuotedStyle}, nil
		}
		node := &yaml.Node{}
		return node, node.Encode(v) // with quotes where any parser needs them
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}, nil
}

// pathsText returns each path on a line of its own.
func pathsText(paths []string) string {
	var b strings.Builder
	for _, p := range paths {
		b.WriteString(plain(p) + "\n")
	}
	return b.String()
}

// printDiagnostics prints each diagnostic in an error about a file on a line of its own, and returns
// errAnswerNo. It returns any other error as it is.
func printDiagnostics(env Env, file string, err error) error {
	if _, ok := errors.AsType[*diag.Diagnostic](err); !ok {
		return err
	}
	for _, d := range diag.InFile(file, err) {
		env.message("%s", d)
	}
	return errAnswerNo
}

// answerError ends a command that has written why the answer is no, or why there is none.
func answerError(written error, no, unknown bool) error {
	switch {
	case written != nil:
		return written
	case no:
		return errAnswerNo
	case unknown:
		return errNoAnswer
	}
	return nil
}

// plain returns s in one line, without characters that a terminal acts on.
func plain(s string) string { return diag.Plain(s) }

// plainLines is like plain, but keeps line breaks.
func plainLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return strings.Join(lines, "\n")
}

// wrapText breaks the lines of a text at spaces, so that with an indent they are at most width
// columns wide. Further lines are indented. A width of 0, or one that leaves less than 20 columns,
// breaks none.
func wrapText(text string, width, indent int) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Split(line, " ")
		wrapped := words[0]
		for _, word := range words[1:] {
			longer := wrapped + " " + word
			if width-indent >= 20 && indent+utf8.RuneCountInString(longer) > width {
				lines = append(lines, wrapped)
				longer = word
			}
			wrapped = longer
		}
		lines = append(lines, wrapped)
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}

// table lays out rows in columns, two spaces apart. The last column has any width.
type table struct {
	rows [][]string
}

// addRow adds a row. An empty cell is "-", so that columns can be split by spaces.
func (t *table) addRow(cells ...string) {
	for i := range cells {
		cells[i] = cmp.Or(plain(cells[i]), "-")
	}
	t.rows = append(t.rows, cells)
}

// colorCell gives a cell of the last row a colour. In a column before the last one, all cells must have one.
func (t *table) colorCell(column int, color string) {
	row := t.rows[len(t.rows)-1]
	row[column] = colored(color, row[column])
}

// formatText returns the table with each line indented.
func (t *table) formatText(indent string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(w, indent+strings.Join(row, "\t"))
	}
	w.Flush() // a strings.Builder takes all
	return b.String()
}
