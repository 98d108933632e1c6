// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// A command reads its input or refuses it in a message of bounded length that names the file.
func FuzzInput(f *testing.F) {
	for _, data := range []string{
		"config: c.yaml\ncases:\n- {name: a, for: {namespace: n}, ask: {cdi: [v.com/n=a]}, want: granted, rule: r}\n- {name: b, pod: p.yaml, want: refused, message: m, count: {cdi: 1}}\n",
		"cases: [{}]", "cases: [{name: a, for: {}, want: granted, count: {cdi: x}}]", "a: &a [*a]\n", "\t", "0123456789ab,0123456789abcdef\n", "abc -",
	} {
		f.Add([]byte(data))
	}
	const file = "the-file.yaml"
	f.Fuzz(func(t *testing.T, data []byte) {
		refused := func(what string, none bool, err error) {
			t.Helper()
			if none == (err == nil) {
				t.Fatalf("%s: both or neither of a value and %v", what, err)
			}
			if err != nil && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), file) || len(err.Error()) > 4<<10) {
				t.Errorf("%s: %d bytes: %.500v", what, len(err.Error()), err)
			}
		}
		cases, err := parseCases(file, data)
		refused("cases", cases == nil, err)
		if err == nil {
			for i := range cases.Cases {
				if c := &cases.Cases[i]; c.Name == "" || (c.Pod == "") == (c.For == nil) {
					t.Errorf("%+v", c)
				}
			}
		}
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
