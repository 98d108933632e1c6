// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"

	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// value is a value of the configuration. Its path is its dotted key.
type value struct {
	path string
	*jsontree.Node
}

// member returns the value of a key of a map. Its Node is nil for a missing key.
func (v value) member(key string) value { return value{v.path + "." + key, v.Member(key)} }

func (v value) isNull() bool { return v.Node == nil || v.Kind == jsontree.Null }

// isEmpty reports whether a value requests nothing.
func (v value) isEmpty() bool {
	return v.isNull() || v.Kind >= jsontree.String && v.Text == "" && len(v.Children) == 0
}

// decode decodes a value with encoding/json, which ignores the case of keys, because containerd
// writes some with a capital letter. null leaves to unchanged.
func (c *Config) decode(v value, to any, rule string) error {
	if v.isNull() {
		return nil
	}
	if json.Unmarshal([]byte(c.Text[v.Start:v.End]), to) != nil {
		return c.invalidValue(v, rule)
	}
	return nil
}

func (c *Config) decodeString(v value) (s string, err error) {
	err = c.decode(v, &s, "a string")
	return s, err
}

// members returns the members of a map; null has none.
func (c *Config) members(v value) ([]value, error) {
	if v.isNull() {
		return nil, nil
	}
	if v.Kind != jsontree.Object {
		return nil, c.invalidValue(v, "a map")
	}
	var list []value
	for _, n := range v.Children {
		list = append(list, value{v.path + "." + n.Key, n})
	}
	return list, nil
}

// invalidValue returns the error for a value of the configuration (code 7).
func (c *Config) invalidValue(v value, rule string) error {
	return c.Invalid(v.path, c.sourceOf(v.Node), rule)
}
