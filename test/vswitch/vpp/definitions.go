// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

//go:embed testdata/messages.json
var published []byte

// definition is a message of VPP's API.
type definition struct {
	CRC    string   `json:"crc"`
	Fields []string `json:"fields"`
}

// definitions are the published messages and types.
type definitions struct {
	Messages map[string]definition      `json:"messages"`
	Types    map[string]json.RawMessage `json:"types"`
}

func readDefinitions() (*definitions, error) {
	d := new(definitions)
	return d, json.Unmarshal(published, d)
}

// tableName is a message's name in the table that a client gets.
func (d *definitions) tableName(name string) string {
	return name + "_" + strings.TrimPrefix(d.Messages[name].CRC, "0x")
}

// values are the fields of a message: uint64, int64 for signed ones, bool, string, and lists of values.
type values map[string]any

var errShort = errors.New("the message is too short")

// field is "TYPE NAME", "TYPE NAME[COUNT]" or "TYPE NAME[]".
type field struct {
	kind, name string
	array      bool
	count      int // 0 for a variable one
}

func parseField(text string) field {
	kind, name, _ := strings.Cut(text, " ")
	f := field{kind: kind, name: name}
	if base, rest, ok := strings.Cut(name, "["); ok {
		f.array, f.name = true, base
		f.count, _ = strconv.Atoi(strings.TrimSuffix(rest, "]"))
	}
	return f
}

// decode reads a whole message.
func (d *definitions) decode(fields []string, data []byte) (values, error) {
	v := values{}
	rest, err := d.decodeFields(fields, data, v)
	if err == nil && len(rest) != 0 {
		err = fmt.Errorf("the message has %d bytes too many", len(rest))
	}
	return v, err
}

func (d *definitions) decodeFields(fields []string, data []byte, v values) ([]byte, error) {
	var err error
	for _, text := range fields {
		f := parseField(text)
		if f.kind == "string" {
			n := f.count
			if n == 0 {
				if len(data) < 4 {
					return nil, errShort
				}
				n, data = int(binary.BigEndian.Uint32(data)), data[4:]
			}
			if len(data) < n {
				return nil, errShort
			}
			s, _, terminated := bytes.Cut(data[:n], []byte{0})
			if f.count != 0 && !terminated {
				return nil, fmt.Errorf("the string %s has no NUL", f.name)
			}
			v[f.name], data = string(s), data[n:]
			continue
		}
		if !f.array {
			if v[f.name], data, err = d.decodeOne(f.kind, data); err != nil {
				return nil, err
			}
			continue
		}
		var list []any
		for range f.count {
			var one any
			if one, data, err = d.decodeOne(f.kind, data); err != nil {
				return nil, err
			}
			list = append(list, one)
		}
		v[f.name] = list
	}
	return data, nil
}

var sizes = map[string]int{"u8": 1, "bool": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8}

func (d *definitions) decodeOne(kind string, data []byte) (any, []byte, error) {
	if size, ok := sizes[kind]; ok {
		if len(data) < size {
			return nil, nil, errShort
		}
		var wide [8]byte
		copy(wide[8-size:], data[:size])
		n := binary.BigEndian.Uint64(wide[:])
		switch kind {
		case "bool":
			return n != 0, data[size:], nil
		case "i32":
			return int64(int32(n)), data[size:], nil
		}
		return n, data[size:], nil
	}
	fields, err := d.fieldsOf(kind)
	if err != nil {
		return nil, nil, err
	}
	v := values{}
	rest, err := d.decodeFields(fields, data, v)
	if len(fields) == 1 && parseField(fields[0]).name == "value" {
		return v["value"], rest, err
	}
	return v, rest, err
}

// fieldsOf returns the fields of a type that is not a number. An alias has the one field "value".
func (d *definitions) fieldsOf(kind string) ([]string, error) {
	text, ok := d.Types[kind]
	if !ok {
		return nil, fmt.Errorf("no definition of the type %q", kind)
	}
	var alias string
	var enum struct{ Base string }
	var fields []string
	switch {
	case json.Unmarshal(text, &alias) == nil:
		base, count, array := strings.Cut(alias, "[")
		if array {
			return []string{base + " value[" + count}, nil
		}
		return []string{alias + " value"}, nil
	case json.Unmarshal(text, &fields) == nil:
		return fields, nil
	case json.Unmarshal(text, &enum) == nil && enum.Base != "":
		return []string{enum.Base + " value"}, nil
	}
	return nil, fmt.Errorf("cannot read the definition of the type %q", kind)
}

// encode writes a message. A field without a value is zero.
func (d *definitions) encode(fields []string, v values) ([]byte, error) {
	var out []byte
	for _, text := range fields {
		f := parseField(text)
		value := v[f.name]
		switch {
		case f.kind == "string":
			s, _ := value.(string)
			if f.count == 0 {
				out = append(binary.BigEndian.AppendUint32(out, uint32(len(s))), s...)
				continue
			}
			if len(s) >= f.count {
				return nil, fmt.Errorf("%s: %q is too long", f.name, s)
			}
			out = append(out, s...)
			out = append(out, make([]byte, f.count-len(s))...)
		case f.array:
			list, _ := value.([]any)
			for i := range max(f.count, len(list)) {
				var one any
				if i < len(list) {
					one = list[i]
				}
				b, err := d.encodeOne(f.kind, one)
				if err != nil {
					return nil, err
				}
				out = append(out, b...)
			}
		default:
			b, err := d.encodeOne(f.kind, value)
			if err != nil {
				return nil, err
			}
			out = append(out, b...)
		}
	}
	return out, nil
}

func (d *definitions) encodeOne(kind string, value any) ([]byte, error) {
	if size, ok := sizes[kind]; ok {
		var n uint64
		switch x := value.(type) {
		case uint64:
			n = x
		case int64:
			n = uint64(x)
		case bool:
			if x {
				n = 1
			}
		}
		return binary.BigEndian.AppendUint64(nil, n)[8-size:], nil
	}
	fields, err := d.fieldsOf(kind)
	if err != nil {
		return nil, err
	}
	v, ok := value.(values)
	if !ok {
		v = values{"value": value}
	}
	return d.encode(fields, v)
}
