// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// uuid names a row, ["uuid", "…"] in JSON.
type uuid string

func (u uuid) MarshalJSON() ([]byte, error) { return json.Marshal([]string{"uuid", string(u)}) }

func (u *uuid) UnmarshalJSON(data []byte) error {
	var pair []string
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || pair[0] != "uuid" {
		return fmt.Errorf("found %.100s, want a UUID", data)
	}
	*u = uuid(pair[1])
	return nil
}

// newRow names a row that the same transaction inserts.
type newRow string

func (n newRow) MarshalJSON() ([]byte, error) {
	return json.Marshal([]string{"named-uuid", string(n)})
}

// set is the value of a column with any number of values: ["set", […]], or the value itself if it is
// the only one.
type set[T any] []T

func (s set[T]) MarshalJSON() ([]byte, error) {
	values := []T(s)
	if values == nil {
		values = []T{}
	}
	return json.Marshal([]any{"set", values})
}

func (s *set[T]) UnmarshalJSON(data []byte) error {
	*s = nil
	var pair []json.RawMessage
	if json.Unmarshal(data, &pair) == nil && len(pair) == 2 && string(pair[0]) == `"set"` {
		return json.Unmarshal(pair[1], (*[]T)(s))
	}
	var one T
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*s = set[T]{one}
	return nil
}

// optional returns a set of v, or an empty set if v is zero.
func optional[T comparable](v T) set[T] {
	var zero T
	if v == zero {
		return nil
	}
	return set[T]{v}
}

// first returns the first value, or zero.
func (s set[T]) first() T {
	var v T
	if len(s) > 0 {
		v = s[0]
	}
	return v
}

// stringMap is a map of strings: ["map", [[key, value], …]].
type stringMap map[string]string

func (m stringMap) MarshalJSON() ([]byte, error) {
	pairs := [][2]string{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, [2]string{key, m[key]})
	}
	return json.Marshal([]any{"map", pairs})
}

func (m *stringMap) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || string(pair[0]) != `"map"` {
		return fmt.Errorf("found %.100s, want a map", data)
	}
	var pairs [][2]string
	if err := json.Unmarshal(pair[1], &pairs); err != nil {
		return err
	}
	*m = make(stringMap, len(pairs))
	for _, p := range pairs {
		(*m)[p[0]] = p[1]
	}
	return nil
}
