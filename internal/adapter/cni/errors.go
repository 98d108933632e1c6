// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// The error codes of the specification (§5, Error). Codes from 100 are the plugin's own.
const (
	codeVersion     = types.ErrIncompatibleCNIVersion
	codeContainer   = types.ErrUnknownContainer
	codeEnvironment = types.ErrInvalidEnvironmentVariables
	codeIO          = types.ErrIOFailure
	codeDecode      = types.ErrDecodingFailure
	codeConfig      = types.ErrInvalidNetworkConfig
	codeExists      = attach.CodeExists
)

// environment returns the error for an environment variable (code 4).
func (p *Plugin) environment(name, want string) error {
	return attach.Fail(codeEnvironment, "invalid environment variable "+name, "%s=%q: want %s", name, diag.Excerpt(p.getenv(name), diag.MaxExcerpt), want)
}

// invalidValue returns the error for a value of the configuration (code 7).
func (c *conf) invalidValue(v value, want string) error {
	return c.Invalid(v.path, c.sourceOf(v.Node), want)
}

// findValue returns the value of a key with dots, or nil. A name between the dots may contain dots itself.
func (c *conf) findValue(key string) *jsontree.Node {
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
func (c *conf) Place(key string) string {
	n := c.findValue(key)
	if n == nil {
		return ""
	}
	return fmt.Sprintf("line %d, column %d: ", n.Line, n.Column)
}

// sourceOf returns a value as the configuration has it, without white space and bounded in length.
func (c *conf) sourceOf(n *jsontree.Node) string {
	if n == nil {
		return "nothing"
	}
	var b bytes.Buffer
	_ = json.Compact(&b, []byte(c.source[n.Start:n.End])) // it is JSON
	return diag.Excerpt(b.String(), diag.MaxExcerpt)
}

// Name returns a key, which users write as it is.
func (c *conf) Name(key string) string { return key }

// Value returns the value of a key as the configuration has it.
func (c *conf) Value(key string) string { return c.sourceOf(c.findValue(key)) }
