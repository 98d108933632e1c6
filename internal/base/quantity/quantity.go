// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"strconv"
	"strings"
)

// Rule describes the valid sizes, for errors.
const Rule = `must be a size from "4Ki" to "1Gi": a number of bytes, or of Ki, Mi or Gi`

// ParseSize reads a size such as "65536" or "1Mi", in bytes.
func ParseSize(s string) (size uint64, ok bool) {
	return parse(s, 1024, 4<<10, 1<<30, "Ki", "Mi", "Gi")
}

// RateRule describes the valid rates, for errors.
const RateRule = `must be a rate from "1K" to "10T": a number of bits a second, or of K, M, G or T (powers of 1000)`

// ParseRate reads a rate such as "1000000" or "1G", in bits a second.
func ParseRate(s string) (rate uint64, ok bool) {
	return parse(s, 1000, 1000, 10_000_000_000_000, "K", "M", "G", "T")
}

// parse reads a number that may have one of the units, each of which is base times the one before it.
func parse(s string, base, least, largest uint64, units ...string) (value uint64, ok bool) {
	factor := uint64(1)
	for _, unit := range units {
		factor *= base
		if number, found := strings.CutSuffix(s, unit); found {
			n, err := strconv.ParseUint(number, 10, 64)
			return n * factor, err == nil && n <= largest/factor && n*factor >= least
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && least <= n && n <= largest
}
