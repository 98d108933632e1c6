// SPDX-License-Identifier: Apache-2.0

package name

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestMatchInfoFile(t *testing.T) {
	for _, c := range []struct {
		name, id, network, ifName string
	}{
		{"ns-nad-ab_net1", "ab", "ns-nad", "net1"},
		{"ns-nad-ab_net1", "b", "", ""},
		{"ns-nad-ab_net1", "a", "", ""},
		{"ns-nad-ab_net1", "nad-ab", "ns", "net1"}, // ambiguous: the length of the runtime's IDs is unknown here
		{"ns-nad-ab_net_1", "ab", "ns-nad", "net_1"},
		{"ns-nad-ab_n-ab_1", "ab", "ns-nad", "n-ab_1"},
		{"ns-ab-ab-ab_ab", "ab", "ns-ab-ab", "ab"},
		{"ns-nad-a-b_net1", "a-b", "ns-nad", "net1"},
		{"ns-nad-a_b_net1", "a_b", "ns-nad", "net1"},
		{"ns-nad-a_b_net1", "a", "ns-nad", "b_net1"},
		{"ns-ab_tooLongForAName-ab_net1", "ab", "ns-ab_tooLongForAName", "net1"},
		{"-ab_net1", "ab", "", ""},
		{"ns-nad-ab_", "ab", "", ""},
		{"ns-nad-ab_sixteen-bytes-xx", "ab", "", ""},
		{".ns-nad-ab_net1", "ab", "", ""},
		{".jackfield-X-ab_net1.tmp", "ab", "", ""},
		{"ns-nad-ab_net1", "", "", ""},
		{"ns-nad-a/b_net1", "a/b", "", ""},
		{"", "ab", "", ""},
	} {
		network, ifName, ok := MatchInfoFile(c.name, c.id)
		if network != c.network || ifName != c.ifName || ok != (c.network != "") {
			t.Errorf("MatchInfoFile(%q, %q) = %q, %q, %v; want %q, %q", c.name, c.id, network, ifName, ok, c.network, c.ifName)
		}
	}
}

func TestCheckFile(t *testing.T) {
	for _, name := range []string{"", ".", "..", ".hidden", "a/b", "/", "../a", "a\x00b", strings.Repeat("a", 256)} {
		if err := CheckFile(name); !errdefs.IsInvalidArgument(err) {
			t.Errorf("CheckFile(%q) = %v; want invalid argument", name, err)
		}
	}
	for _, name := range []string{"a", "a..b", "ns-nad-id_net1", strings.Repeat("a", 255), "0000:01:00.0"} {
		if err := CheckFile(name); err != nil {
			t.Error(err)
		}
	}
}

func TestSplitInfoFile(t *testing.T) {
	id := strings.Repeat("0a", 32)
	for name, want := range map[string][3]string{
		"telco-east-" + id + "_net1":        {"telco-east", id, "net1"},
		"telco-east-" + id + "_":            {},
		"telco-east-" + id[2:] + "_net1":    {},
		"telco-east_net1":                   {},
		".telco-east-" + id + "_net1":       {},
		"telco-east-" + id + "_net1.tmp-12": {"telco-east", id, "net1.tmp-12"},
	} {
		network, sandbox, ifName := SplitInfoFile(name)
		if got := [3]string{network, sandbox, ifName}; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
