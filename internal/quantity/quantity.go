// SPDX-License-Identifier: Apache-2.0

// Package quantity reads sizes and rates in configurations.
package quantity

import (
	"strconv"
	"strings"
)

// The least and the largest size of a directory.
const least, largest = 4 << 10, 1 << 30

// Rule describes the valid sizes, for errors.
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

// RateRule describes the valid rates, for errors.
const RateRule = `want a rate from "1K" to "10T": a number of bits a second, or of K, M, G or T (powers of 1000)`

// ParseRate reads a rate such as "1000000" or "1G", in bits a second.
func ParseRate(s string) (rate uint64, ok bool) {
	factor := uint64(1)
	for i, unit := range []string{"K", "M", "G", "T"} {
		if rest, found := strings.CutSuffix(s, unit); found {
			s = rest
			for range i + 1 {
				factor *= 1000
			}
			break
		}
	}
	const least, largest = 1000, 10_000_000_000_000
	n, err := strconv.ParseUint(s, 10, 64)
	return n * factor, err == nil && n <= largest/factor && n*factor >= least
}
