// SPDX-License-Identifier: Apache-2.0

package policyeval

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// A file of cases is read, or refused in a message of bounded length that names the file.
func FuzzCases(f *testing.F) {
	for _, data := range []string{
		"config: c.yaml\ncases:\n- {name: a, for: {namespace: n}, ask: {cdi: [v.com/n=a]}, want: granted, rule: r}\n- {name: b, pod: p.yaml, want: refused, message: m, count: {cdi: 1}}\n",
		"cases: [{}]", "cases: [{name: a, for: {}, want: granted, count: {cdi: x}}]", "a: &a [*a]\n", "\t",
		"{\"cases\": [{\"name\": \"\u007f\"}]}", "{\"x\": \"\u007f\"}", // JSON that is not YAML
	} {
		f.Add([]byte(data))
	}
	const file = "the-file.yaml"
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, err := parseCases(file, data)
		if (cases == nil) == (err == nil) {
			t.Fatalf("both or neither of a value and %v", err)
		}
		if err != nil {
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), file) || len(err.Error()) > 4<<10 {
				t.Errorf("%d bytes: %.500v", len(err.Error()), err)
			}
			return
		}
		for i := range cases.Cases {
			if c := &cases.Cases[i]; c.Name == "" || (c.Pod == "") == (c.For == nil) {
				t.Errorf("%+v", c)
			}
		}
	})
}
