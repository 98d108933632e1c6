// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"bytes"
	"testing"
)

func TestPlaces(t *testing.T) {
	data := []byte("{\"version\":\"1.0.0\",\n \"Hook\": {\"path\":\n  \"/h\", \"arg\": []},\n \"when\": {\"annotations\": {\"a[\": \"b\"}},\n \"stages\": [\"x\",\n   \"y\"], \"comment\": 1}")
	for field, want := range map[string][2]int{
		"hook.path": {3, 3}, `hook."arg"`: {3, 9}, `when.annotations["a["]`: {4, 27}, "when.commands[2]": {4, 10},
		"stages[0]": {5, 13}, "stages[1]": {6, 4}, `"comment"`: {6, 10}, "nothing": {0, 0}, "": {0, 0},
	} {
		if line, column := placesOf(data).of(field); line != want[0] || column != want[1] {
			t.Errorf("%s is at %d:%d, want %v", field, line, column, want)
		}
	}
}

func FuzzPlaces(f *testing.F) {
	f.Add([]byte(`{"hook":{"path":"/h"},"stages":["x",[[[[[{"a":1}]]]]]]}`), "stages[1]")
	f.Add([]byte("{\"a\":\n{"), "a.b")
	f.Fuzz(func(t *testing.T, data []byte, field string) {
		line, column := placesOf(data).of(field)
		if line < 0 || column < 0 || line > bytes.Count(data, []byte("\n"))+1 || column > len(data)+1 {
			t.Errorf("%d:%d", line, column)
		}
	})
}
