// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// What is plain is read and written here: strings without an escape, whole numbers,
// true and false, and objects of those under the names that runtimes write. Before
// encoding/json takes on the first value of a type it works out the type's fields,
// which in a process that edits one config.json takes longer than the editing. What is
// not plain is left to it, and the outcome is its own in any case.

// plainField is a member of a plain object.
type plainField struct {
	key   string
	value any  // a pointer, such as readPlain takes
	empty bool // is written when it is empty
}

// plainFields are the members of an object in the order in which they are written.
// object is a pointer to it; of any other type there are none.
func plainFields(object any) []plainField {
	switch o := object.(type) {
	case *rspec.Mount:
		if o.UIDMappings == nil && o.GIDMappings == nil {
			return []plainField{{"destination", &o.Destination, true}, {"type", &o.Type, false}, {"source", &o.Source, false}, {"options", &o.Options, false}}
		}
	case *rspec.Hook:
		return []plainField{{"path", &o.Path, true}, {"args", &o.Args, false}, {"env", &o.Env, false}, {"timeout", &o.Timeout, false}}
	case *rspec.LinuxDevice:
		return []plainField{{"path", &o.Path, true}, {"type", &o.Type, true}, {"major", &o.Major, true}, {"minor", &o.Minor, true},
			{"fileMode", &o.FileMode, false}, {"uid", &o.UID, false}, {"gid", &o.GID, false}}
	case *rspec.LinuxDeviceCgroup:
		return []plainField{{"allow", &o.Allow, true}, {"type", &o.Type, false}, {"major", &o.Major, false}, {"minor", &o.Minor, false}, {"access", &o.Access, false}}
	case *rspec.State:
		return []plainField{{"ociVersion", &o.Version, true}, {"id", &o.ID, true}, {"status", (*string)(&o.Status), true}, {"pid", &o.Pid, false},
			{"bundle", &o.Bundle, true}, {"annotations", &o.Annotations, false}}
	case *rspec.LinuxNamespace:
		return []plainField{{"type", (*string)(&o.Type), true}, {"path", &o.Path, false}}
	}
	return nil
}

// readPlain reads a JSON value into what a pointer points to, an empty value, if it is
// plain. If not, some of it may have been read.
func readPlain(text string, at span, into any) (ok bool) {
	value := at.of(text)
	switch into := into.(type) {
	case *string:
		*into, ok = plainString(value)
	case *[]string:
		*into, ok = plainStrings(text, at)
	case *map[string]string:
		*into, ok = plainMap(text, at)
	case *bool:
		*into, ok = value == "true", value == "true" || value == "false"
	case *int:
		*into, ok = plainNumber[int](value)
	case *int64:
		*into, ok = plainNumber[int64](value)
	case *uint32:
		*into, ok = plainNumber[uint32](value)
	case **int:
		*into, ok = plainPointer[int](value)
	case **int64:
		*into, ok = plainPointer[int64](value)
	case **uint32:
		*into, ok = plainPointer[uint32](value)
	case **os.FileMode:
		*into, ok = plainPointer[os.FileMode](value)
	default:
		return readPlainObject(text, at, plainFields(into))
	}
	return ok
}

func readPlainObject(text string, at span, fields []plainField) bool {
	if fields == nil || text[at.start] != '{' {
		return false
	}
	for _, m := range members(text, at) {
		known := false
		for i := range fields {
			if fields[i].key == m.key {
				known = readPlain(text, m.value, fields[i].value)
				break
			}
		}
		if !known {
			return false
		}
	}
	return true
}

func plainStrings(text string, at span) ([]string, bool) {
	if text[at.start] != '[' {
		return nil, false
	}
	list := elements(text, at)
	out := make([]string, len(list))
	for i, at := range list {
		var ok bool
		if out[i], ok = plainString(at.of(text)); !ok {
			return nil, false
		}
	}
	return out, true
}

func plainMap(text string, at span) (map[string]string, bool) {
	if text[at.start] != '{' {
		return nil, false
	}
	list := members(text, at)
	out := make(map[string]string, len(list))
	for _, m := range list {
		value, ok := plainString(m.value.of(text))
		if !ok || !utf8.ValidString(m.key) {
			return nil, false
		}
		out[m.key] = value
	}
	return out, true
}

func plainString(value string) (string, bool) {
	if value[0] != '"' || strings.IndexByte(value, '\\') >= 0 || !utf8.ValidString(value) {
		return "", false
	}
	return value[1 : len(value)-1], true
}

func plainNumber[T int | int64 | uint32 | os.FileMode](value string) (T, bool) {
	n, err := strconv.ParseInt(value, 10, 64)
	return T(n), err == nil && int64(T(n)) == n && value != "-0"
}

func plainPointer[T int | int64 | uint32 | os.FileMode](value string) (*T, bool) {
	n, ok := plainNumber[T](value)
	if !ok {
		return nil, false
	}
	return &n, true
}

// appendPlain appends what a pointer points to as JSON in one line, if it is plain.
func appendPlain(out []byte, from any) (_ []byte, ok bool) {
	switch from := from.(type) {
	case *string:
		return appendPlainString(out, *from)
	case *[]string:
		for i, s := range *from {
			if out, ok = appendPlainString(append(out, "[,"[min(i, 1)]), s); !ok {
				return nil, false
			}
		}
		return append(out, ']'), len(*from) > 0
	case *bool:
		return strconv.AppendBool(out, *from), true
	case *int64:
		return appendNumber(out, from)
	case *uint32:
		return appendNumber(out, from)
	case **int:
		return appendNumber(out, *from)
	case **int64:
		return appendNumber(out, *from)
	case **uint32:
		return appendNumber(out, *from)
	case **os.FileMode:
		return appendNumber(out, *from)
	}
	return appendPlainObject(out, plainFields(from))
}

func appendPlainObject(out []byte, fields []plainField) (_ []byte, ok bool) {
	if fields == nil {
		return nil, false
	}
	out = append(out, '{')
	for _, f := range fields {
		if !f.empty && isEmpty(f.value) {
			continue
		}
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), f.key...), '"', ':')
		if out, ok = appendPlain(out, f.value); !ok {
			return nil, false
		}
	}
	return append(out, '}'), true
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case *string:
		return *v == ""
	case *[]string:
		return len(*v) == 0
	case **int:
		return *v == nil
	case **int64:
		return *v == nil
	case **uint32:
		return *v == nil
	case **os.FileMode:
		return *v == nil
	}
	return false
}

func appendNumber[T int | int64 | uint32 | os.FileMode](out []byte, n *T) ([]byte, bool) {
	if n == nil {
		return nil, false
	}
	return strconv.AppendInt(out, int64(*n), 10), true
}

func appendPlainString(out []byte, s string) ([]byte, bool) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return nil, false
		}
	}
	return append(append(append(out, '"'), s...), '"'), true
}
