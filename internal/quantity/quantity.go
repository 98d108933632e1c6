// SPDX-License-Identifier: Apache-2.0

// Package quantity reads sizes in configurations.
package quantity

import (
	"strconv"
	"strings"
)

// The least and the largest size of a directory.
const least, largest = 4 << 10, 1 << 30

// Rule says which sizes there are, for errors.
const Rule = `want a size from "4Ki" to "1Gi": a number of bytes, or of Ki, Mi or Gi`

// ParseSize reads a size such as "65536" or "1Mi", in bytes.
func ParseSize(s string) (size uint64, ok bool) {
	shift := 0
	for i, unit := range []string{"Ki", "Mi", "Gi"} {
		if rest, found := strings.CutSuffix(s, unit); found {
			s, shift = rest, 10*(i+1)
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 32)
	size = n << shift
	return size, err == nil && size >= least && size <= largest
}
