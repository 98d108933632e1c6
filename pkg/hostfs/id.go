// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
)

// CheckID refuses an ID of a container or sandbox that is no safe file name: one that
// leads out of its directory, or is one of the names with a dot first.
func CheckID(id string) error {
	if id != "" && len(id) <= 128 && id[0] != '.' && !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	}) {
		return nil
	}
	return fmt.Errorf("found %q, want 1 to 128 of A-Z a-z 0-9 - _ . and no dot first: %w", id, errdefs.ErrInvalidArgument)
}
