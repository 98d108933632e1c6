// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// document is the text of a configuration, which messages quote.
type document struct {
	Text string         // the whole configuration
	root *jsontree.Node // parsed Text
}

// findValue returns the value of a dotted key, or nil. Names in it can contain dots themselves.
func (d *document) findValue(key string) *jsontree.Node {
	for at := d.root; ; {
		if n := at.Member(key); n != nil {
			return n
		}
		first, rest, ok := strings.Cut(key, ".")
		if at = at.Member(first); !ok || at == nil {
			return nil
		}
		key = rest
	}
}

// Place returns the place of a key's value as the prefix of a message, or "" for a missing key.
// Together with Name and Value, it implements attach.Source.
func (d *document) Place(key string) string {
	n := d.findValue(key)
	if n == nil {
		return ""
	}
	return fmt.Sprintf("line %d, column %d: ", n.Line, n.Column)
}

// sourceOf returns a value in the configuration's spelling, without white space and of bounded
// length.
func (d *document) sourceOf(n *jsontree.Node) string {
	if n == nil {
		return "nothing"
	}
	var b bytes.Buffer
	_ = json.Compact(&b, []byte(d.Text[n.Start:n.End])) // it is JSON
	return diag.Excerpt(b.String(), diag.MaxExcerpt)
}

// Name returns a key unchanged, because users write it in this form.
func (d *document) Name(key string) string { return key }

// Value returns the value of a key in the configuration's spelling.
func (d *document) Value(key string) string { return d.sourceOf(d.findValue(key)) }
