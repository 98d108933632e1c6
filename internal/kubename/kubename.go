// SPDX-License-Identifier: Apache-2.0

// Package kubename checks names by the rules of Kubernetes' API.
package kubename

import "strings"

const (
	maxLabel     = 63
	maxSubdomain = 253

	lowerAlphanumeric = "abcdefghijklmnopqrstuvwxyz0123456789"
	alphanumeric      = lowerAlphanumeric + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// IsLabel reports whether s is a DNS label in lower case (RFC 1123), as names of namespaces and
// containers are.
func IsLabel(s string) bool { return isPart(s, lowerAlphanumeric, "-") }

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
func IsQualifiedPart(s string) bool { return isPart(s, alphanumeric, "-_.") }

// isPart reports whether s has at most maxLabel characters, of the outer set at both ends, and of either set between.
func isPart(s, outer, inner string) bool {
	return s != "" && len(s) <= maxLabel && strings.Trim(s, outer+inner) == "" &&
		strings.Contains(outer, s[:1]) && strings.Contains(outer, s[len(s)-1:])
}
