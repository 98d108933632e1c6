// SPDX-License-Identifier: Apache-2.0

// Package kubename checks names by the rules of Kubernetes' API.
//
// The length is compared, and not counted by the pattern: compiling {0,61} takes each program that
// links the pattern a third of a millisecond at its start.
package kubename

import (
	"regexp"
	"strings"
)

const (
	maxLabel     = 63
	maxSubdomain = 253
)

var (
	labelPattern         = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	qualifiedPartPattern = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
)

// IsLabel reports whether s is a DNS label in lower case (RFC 1123), as names of namespaces and
// containers are.
func IsLabel(s string) bool { return len(s) <= maxLabel && labelPattern.MatchString(s) }

// IsSubdomain reports whether s is a DNS subdomain in lower case: labels separated by dots.
func IsSubdomain(s string) bool {
	if len(s) > maxSubdomain {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !IsLabel(label) {
			return false
		}
	}
	return true
}

// IsQualifiedPart reports whether s can follow the slash of a qualified name, such as the "nic" of
// "example.com/nic".
func IsQualifiedPart(s string) bool { return len(s) <= maxLabel && qualifiedPartPattern.MatchString(s) }
