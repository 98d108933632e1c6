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

// findValue returns the value of a key with dots, or nil. A name between the dots may contain dots itself.
func (c *Config) findValue(key string) *jsontree.Node {
	for at := c.root; ; {
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

// Place returns the place of a key's value as the beginning of a message, or "" for a missing key. With Name and
// Value, it describes the configuration in errors of package attach.
func (c *Config) Place(key string) string {
	n := c.findValue(key)
	if n == nil {
		return ""
	}
	return fmt.Sprintf("line %d, column %d: ", n.Line, n.Column)
}

// sourceOf returns a value as the configuration has it, without white space and bounded in length.
func (c *Config) sourceOf(n *jsontree.Node) string {
	if n == nil {
		return "nothing"
	}
	var b bytes.Buffer
	_ = json.Compact(&b, []byte(c.Text[n.Start:n.End])) // it is JSON
	return diag.Excerpt(b.String(), diag.MaxExcerpt)
}

// Name returns a key, which users write as it is.
func (c *Config) Name(key string) string { return key }

// Value returns the value of a key as the configuration has it.
func (c *Config) Value(key string) string { return c.sourceOf(c.findValue(key)) }
