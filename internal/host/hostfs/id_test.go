// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestIDsAreSafeFileNames(t *testing.T) {
	for id, good := range map[string]bool{
		"a": true, "A-b_c.9": true, strings.Repeat("f", 128): true, "-": true,
		"": false, ".": false, "..": false, ".a": false, "a/b": false, "a b": false, "é": false, "a\x00": false, strings.Repeat("f", 129): false,
	} {
		if err := CheckID(id); (err == nil) != good || err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("CheckID(%q): %v", id, err)
		}
	}
}
