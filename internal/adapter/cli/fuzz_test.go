// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// A list of IDs is valid, or its fault is a message of bounded length. Text for a terminal is made of any content.
func FuzzInput(f *testing.F) {
	for _, data := range []string{"a: &a [*a]\n", "\t", "0123456789ab,0123456789abcdef\n", "abc -"} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ids := splitIDs(string(data))
		if fault := checkIDs(ids); len(fault) > 1000 || (fault == "") != (len(ids) > 0 && everyID(ids)) {
			t.Errorf("%.200q: %.500s", ids, fault)
		}
		infoText(&deviceinfo.Info{}, data)
	})
}

func everyID(ids []string) bool {
	for _, id := range ids {
		if len(id) < 12 || len(id) > 64 || strings.Trim(id, "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}
