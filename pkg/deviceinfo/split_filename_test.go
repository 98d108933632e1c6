// SPDX-License-Identifier: Apache-2.0

package deviceinfo_test

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

func TestSplitCNIFileName(t *testing.T) {
	id := strings.Repeat("0a", 32)
	for name, want := range map[string][3]string{
		"telco-east-" + id + "_net1":        {"telco-east", id, "net1"},
		"telco-east-" + id + "_":            {},
		"telco-east-" + id[2:] + "_net1":    {},
		"telco-east_net1":                   {},
		".telco-east-" + id + "_net1":       {},
		"telco-east-" + id + "_net1.tmp-12": {"telco-east", id, "net1.tmp-12"},
	} {
		network, sandbox, ifName := deviceinfo.SplitCNIFileName(name)
		if got := [3]string{network, sandbox, ifName}; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
