// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"math"
	"strconv"
)

// Memory is an amount of memory in bytes, or Unlimited.
type Memory uint64

// Unlimited is the kernel's RLIM_INFINITY.
const Unlimited Memory = math.MaxUint64

// MemoryRule describes the valid amounts of memory, for errors.
const MemoryRule = `must be "unlimited" or a size from "64Ki" to "64Ti": a number of bytes, or of Ki, Mi, Gi or Ti`

// ParseMemory reads an amount of memory such as "unlimited" or "2Gi".
func ParseMemory(s string) (Memory, bool) {
	if s == "unlimited" {
		return Unlimited, true
	}
	n, ok := parse(s, 1024, 64<<10, 64<<40, "Ki", "Mi", "Gi", "Ti")
	return Memory(n), ok
}

// String returns the text that ParseMemory reads, with the largest unit that divides the amount.
func (m Memory) String() string {
	if m == Unlimited {
		return "unlimited"
	}
	n, unit := uint64(m), ""
	for _, next := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, next
	}
	return strconv.FormatUint(n, 10) + unit
}

// MarshalText returns String.
func (m Memory) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
