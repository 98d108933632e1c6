// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/pkg/wording"
)

// Error is one fault of a configuration file. It unwraps to
// errdefs.ErrInvalidArgument.
type Error struct {
	File string
	// Line and Column count from 1; 0 where they are not known.
	Line, Column int
	// Field is the dotted field, empty for the file as a whole.
	Field string
	// Found is the value found, quoted and shortened, or its type.
	Found string
	// Rule is what the field wants.
	Rule string
}

// Error implements error.
func (e *Error) Error() string {
	return wording.Fault(e.File, e.Line, e.Column, e.Field, e.Found, e.Rule)
}

// Unwrap implements the errors package's protocol.
func (e *Error) Unwrap() error { return errdefs.ErrInvalidArgument }

// maxErrors bounds how many faults of a file are reported.
const maxErrors = 20

// join returns the faults as one error in the order of the file, nil for none.
func join(faults []*Error) error {
	slices.SortStableFunc(faults, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	more := len(faults) - maxErrors
	errs := make([]error, 0, maxErrors+1)
	for _, f := range faults[:min(len(faults), maxErrors)] {
		errs = append(errs, f)
	}
	if more > 0 {
		errs = append(errs, &Error{File: faults[0].File, Rule: "and " + strconv.Itoa(more) + " more"})
	}
	return errors.Join(errs...)
}

// found describes a node for a message.
func found(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "an object"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Kind == yaml.AliasNode:
		return "an alias"
	case node.Tag == "!!null":
		return "nothing"
	case node.Tag == "!!bool", node.Tag == "!!int", node.Tag == "!!float", node.Tag == "!!timestamp":
		return shorten(node.Value) + ", which YAML reads as " + map[string]string{
			"!!bool": "a boolean", "!!int": "a number", "!!float": "a number", "!!timestamp": "a time",
		}[node.Tag]
	}
	return quote(node.Value)
}

func quote(s string) string { return wording.Quote(s, wording.Most) }

// shorten is quote without the quotation marks.
func shorten(s string) string { return strings.ReplaceAll(quote(s), `"`, "") }

// nearest is a hint at the candidate that word was probably meant to be, or "".
func nearest(word string, candidates []string) string {
	if best := wording.Nearest(word, candidates...); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}
