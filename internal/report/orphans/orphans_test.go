// SPDX-License-Identifier: Apache-2.0

package orphans_test

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/report/orphans"
)

func TestDeviceInfoIsOrphanWithoutItsSandbox(t *testing.T) {
	id := strings.Repeat("0a", 32)
	other := strings.Repeat("1b", 32)
	for _, tt := range []struct {
		name string
		keep []string
		want bool
	}{
		{"telco-east-" + id + "_net1", []string{other}, true},
		{"telco-east-" + id + "_net1", []string{other, id}, false},
		{"telco-east-" + id + "_net1", []string{id[:13]}, false},
		// The ID of a living sandbox anywhere in the name keeps the file.
		{"telco-" + other + "-" + id + "_net1", []string{other}, false},
		{"telco-east-" + other + "_a-" + id + "_net1", []string{other}, false},
		// A name without a readable ID belongs to no orphan.
		{"telco-east-" + id[1:] + "_net1", []string{other}, false},
		{"telco-east-" + strings.ToUpper(id) + "_net1", []string{other}, false},
		{"telco-east-" + id + "_a-name-too-long-for-it", []string{other}, false},
		{"telco-east-" + id, []string{other}, false},
		{"." + "telco-east-" + id + "_net1", []string{other}, false},
		{"-" + id + "_net1", []string{other}, false},
	} {
		if got := orphans.IsDeviceInfo(tt.name, tt.keep); got != tt.want {
			t.Errorf("IsDeviceInfo(%q, %q) = %v, want %v", tt.name, tt.keep, got, tt.want)
		}
	}
}
