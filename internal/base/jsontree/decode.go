// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// Decoder stores values in Go variables.
type Decoder struct {
	// RefuseOtherCase refuses a key that differs from a known key in case only. It is for text that
	// another program reads as well, which may ignore case. Otherwise such a key is unknown.
	RefuseOtherCase bool
	// AcceptDuplicates has the last of several members with one key count, as encoding/json does. It is
	// for text that is to be used whatever is wrong with it.
	AcceptDuplicates bool
	// RefuseUnknown refuses an unknown key. It is for text that people write.
	RefuseUnknown bool
}

// Unmarshal parses text and stores its value, see [Decoder.Decode].
func (d Decoder) Unmarshal(text string, into any) error {
	root, fault := Parse(text)
	if fault == nil {
		fault = d.Decode(root, into)
	}
	if fault != nil {
		return fault
	}
	return nil
}

// Decode stores a value in into, a pointer to a string, boolean, whole number, slice, map, [encoding.TextUnmarshaler]
// or struct with json tags. Unknown keys are ignored, and null leaves a member as it is. It differs from encoding/json:
// keys are case-sensitive, a known key occurs once, and a list has no null. A variable of type *Node receives the value
// itself.
//
// The error has the place and the path of the value at fault, and names no file.
func (d Decoder) Decode(n *Node, into any) *diag.Diagnostic {
	return d.decode(n, "", reflect.ValueOf(into).Elem())
}

var nodeType = reflect.TypeFor[*Node]()

// decode decodes a node into v. A type can decode itself (encoding.TextUnmarshaler), or keep the node with its place.
func (d Decoder) decode(n *Node, path string, v reflect.Value) *diag.Diagnostic {
	if v.Type() == nodeType {
		v.Set(reflect.ValueOf(n))
		return nil
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return decodeText(n, path, text)
	}
	// A container of values passes its own path to its children. A scalar checks the kind of its node itself, so
	// a fault names the innermost field.
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.decode(n, path, v.Elem())
	case reflect.Struct:
		return d.decodeStruct(n, path, v)
	case reflect.Map:
		return d.decodeMap(n, path, v)
	case reflect.Slice:
		return d.decodeSlice(n, path, v)
	case reflect.String:
		v.SetString(n.Text)
		return checkKind(n, path, String)
	case reflect.Bool:
		v.SetBool(strings.EqualFold(n.Text, "true")) // YAML has True
		return checkKind(n, path, Bool)
	}
	return decodeNumber(n, path, v)
}

// decodeStruct decodes an object by the json tags of a struct. Like encoding/json, it leaves a field unchanged if its
// value is null.
func (d Decoder) decodeStruct(n *Node, path string, v reflect.Value) *diag.Diagnostic {
	fields := make(map[string]reflect.Value, v.NumField())
	var names []string
	for i := range v.NumField() {
		if name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); name != "-" {
			fields[name] = v.Field(i)
			names = append(names, name)
		}
	}
	isKnown := func(key string) bool { return fields[key].IsValid() }
	if err := d.checkKeys(n, path, isKnown); err != nil {
		return err
	}
	for _, child := range n.Children {
		if !isKnown(child.Key) {
			if err := d.checkUnknown(child, path, names); err != nil {
				return err
			}
		}
		if child.Kind == Null || !isKnown(child.Key) {
			continue
		}
		if err := d.decode(child, JoinPath(path, child.Key), fields[child.Key]); err != nil {
			return err
		}
	}
	return nil
}

// checkUnknown checks an unknown key of an object with the given known keys.
func (d Decoder) checkUnknown(n *Node, path string, names []string) *diag.Diagnostic {
	fault := &diag.Diagnostic{Line: n.KeyLine, Column: n.KeyColumn, Field: path}
	if d.RefuseUnknown {
		fault.Rule = diag.UnknownKey(n.Key, names...)
		return fault
	}
	i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, n.Key) })
	if d.RefuseOtherCase && i >= 0 {
		fault.Field = JoinPath(path, n.Key)
		fault.Rule = fmt.Sprintf("must be spelled %q: some programs ignore case", names[i])
		return fault
	}
	return nil
}

// decodeMap decodes an object with arbitrary keys. A null value is the zero value.
func (d Decoder) decodeMap(n *Node, path string, v reflect.Value) *diag.Diagnostic {
	if err := d.checkKeys(n, path, func(string) bool { return true }); err != nil {
		return err
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Children)))
	for _, child := range n.Children {
		value := reflect.New(v.Type().Elem()).Elem()
		if child.Kind != Null {
			if err := d.decode(child, JoinPath(path, child.Key), value); err != nil {
				return err
			}
		}
		v.SetMapIndex(reflect.ValueOf(child.Key), value)
	}
	return nil
}

// decodeSlice decodes an array.
func (d Decoder) decodeSlice(n *Node, path string, v reflect.Value) *diag.Diagnostic {
	if err := checkKind(n, path, Array); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Children), len(n.Children)))
	for i, child := range n.Children {
		if err := d.decode(child, JoinPath(path, i), v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// checkKeys checks that a value is an object, and that no known key of it occurs twice.
func (d Decoder) checkKeys(n *Node, path string, isKnown func(key string) bool) *diag.Diagnostic {
	if err := checkKind(n, path, Object); err != nil {
		return err
	}
	if d.AcceptDuplicates {
		return nil
	}
	seen := make(map[string]bool, len(n.Children))
	for _, child := range n.Children {
		if seen[child.Key] && isKnown(child.Key) {
			return &diag.Diagnostic{Line: child.KeyLine, Column: child.KeyColumn, Field: path,
				Found: diag.Quote(child.Key), Rule: "a key must occur only once"}
		}
		seen[child.Key] = true
	}
	return nil
}

// checkKind returns a fault for a value of another kind.
func checkKind(n *Node, path string, kind Kind) *diag.Diagnostic {
	if n.Kind == kind {
		return nil
	}
	return &diag.Diagnostic{Line: n.Line, Column: n.Column, Field: path, Found: n.Kind.String(),
		Rule: "must be " + kind.String()}
}

// decodeText stores a string in a variable that parses it.
func decodeText(n *Node, path string, into encoding.TextUnmarshaler) *diag.Diagnostic {
	if err := checkKind(n, path, String); err != nil {
		return err
	}
	if err := into.UnmarshalText([]byte(n.Text)); err != nil {
		return &diag.Diagnostic{Line: n.Line, Column: n.Column, Field: path, Found: diag.Quote(n.Text),
			Rule: diag.ErrorText(err)}
	}
	return nil
}

// decodeNumber stores a whole number in a variable of any size.
func decodeNumber(n *Node, path string, v reflect.Value) *diag.Diagnostic {
	bits := v.Type().Bits()
	var err error
	var bounds string
	if v.CanInt() {
		var number int64
		number, err = strconv.ParseInt(n.Text, 10, bits)
		v.SetInt(number)
		bounds = fmt.Sprintf("%d to %d", int64(math.MinInt64)>>(64-bits), int64(math.MaxInt64)>>(64-bits))
	} else {
		var number uint64
		number, err = strconv.ParseUint(n.Text, 10, bits)
		v.SetUint(number)
		bounds = fmt.Sprintf("0 to %d", uint64(math.MaxUint64)>>(64-bits))
	}
	if n.Kind == Number && err == nil {
		return nil
	}
	found := n.Kind.String()
	if n.Kind == Number {
		found = diag.Excerpt(n.Text, 40)
	}
	return &diag.Diagnostic{Line: n.Line, Column: n.Column, Field: path, Found: found,
		Rule: "must be a whole number from " + bounds}
}

// JoinPath adds elements to the path of a value: the key of a member, or the index of an element.
func JoinPath(path string, elements ...any) string {
	for _, e := range elements {
		switch e := e.(type) {
		case int:
			path += "[" + strconv.Itoa(e) + "]"
		case string:
			if path != "" {
				path += "."
			}
			path += e
		}
	}
	return path
}

// At returns the value at a path below n, see [JoinPath], or the value that is nearest to it.
func (n *Node) At(path ...any) *Node {
	for _, e := range path {
		next := (*Node)(nil)
		switch e := e.(type) {
		case int:
			if e < len(n.Children) {
				next = n.Children[e]
			}
		case string:
			next = n.Member(e)
		}
		if next == nil {
			break
		}
		n = next
	}
	return n
}
