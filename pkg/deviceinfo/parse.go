// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// Parse reads one device-info map (§3, §4); file is used in messages only. The error is
// [FieldErrors] and unwraps to errdefs.ErrInvalidArgument. It has the first syntax error,
// or every other fault.
//
// Unknown keys are accepted and kept. Refused are: a known key in another case, a key
// twice in one object, anything after the map, wrong types, missing required keys, values
// that the specification does not allow, paths that are not absolute and clean, socket
// paths longer than 107 bytes, sources longer than [MaxSize], and whatever is not
// JSON in UTF-8 without a byte order mark. PCI addresses are returned in lower case.
func Parse(data []byte, file string) (*Info, error) {
	return marshalOptions{}.parse(data, file)
}

func (o marshalOptions) parse(data []byte, file string) (*Info, error) {
	if len(data) > MaxSize {
		return nil, tooLarge(file, int64(len(data)), MaxSize)
	}
	v := &validator{source: string(data), file: file, opts: o}
	root, err := v.parseJSON(jsontree.Object, "4")
	if err != nil {
		return nil, err
	}
	info := v.validateInfo(root, "")
	if len(v.faults) > 0 {
		return nil, inOrder(v.faults)
	}
	info.Warnings = inOrder(v.warnings)
	return info, nil
}

// tooLarge reports a source of more than limit bytes.
func tooLarge(file string, size, limit int64) FieldErrors {
	return FieldErrors{{File: file, Found: fmt.Sprintf("%d bytes", size),
		Rule: fmt.Sprintf("must have at most %d bytes", limit),
		Hint: "remove keys that the specification does not define, or shorten them"}}
}

// parseJSON parses the source as a value of the given kind, which section requires.
func (v *validator) parseJSON(kind jsontree.Kind, section string) (*jsontree.Node, error) {
	root, fault := jsontree.Parse(v.source)
	if fault != nil {
		return nil, FieldErrors{{File: v.file, Line: fault.Line, Column: fault.Column, Field: fault.Field,
			Found: fault.Found, Rule: fault.Rule, Section: inSection(section), Hint: fault.Hint}}
	}
	if root.Kind != kind {
		v.reportType(root, "", kind.String(), section)
		return nil, v.faults
	}
	v.reportDuplicates(root, "", section)
	return root, nil
}

// reportDuplicates reports every key that occurs twice in an object, at any depth.
func (v *validator) reportDuplicates(n *jsontree.Node, path, section string) {
	if len(n.Children) == 0 {
		return
	}
	first := make(map[string]*jsontree.Node, len(n.Children))
	for i, child := range n.Children {
		if n.Kind == jsontree.Array {
			v.reportDuplicates(child, fmt.Sprintf("%s[%d]", path, i), section)
			continue
		}
		if earlier := first[child.Key]; earlier != nil {
			v.addFault(FieldError{Line: child.KeyLine, Column: child.KeyColumn, Field: joinPath(path, child.Key),
				Found: quoteKey(child.Key) + " again",
				Rule:  "must occur only once", Section: section,
				Hint: fmt.Sprintf("the first is at line %d column %d", earlier.KeyLine, earlier.KeyColumn)})
		} else {
			first[child.Key] = child
		}
		if len(child.Children) > 0 {
			v.reportDuplicates(child, joinPath(path, child.Key), section)
		}
	}
}

// quoteKey returns a key in the form that a message may hold.
func quoteKey(key string) string { return `"` + excerpt(key) + `"` }

// joinPath returns the path of a key in the object at path, such as "vdpa.pci-address".
func joinPath(path, key string) string {
	if path == "" {
		return excerpt(key)
	}
	return diag.Excerpt(path, diag.MaxExcerpt) + "." + excerpt(key)
}
