// SPDX-License-Identifier: Apache-2.0

// Package kubename checks names by the rules of Kubernetes' API.
package kubename

import "strings"

const (
	maxLabel     = 63
	maxSubdomain = 253

	lowerCase = "abcdefghijklmnopqrstuvwxyz0123456789"
	anyCase   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + lowerCase
)

// IsLabel reports whether s is a DNS label in lower case (RFC 1123), as names of namespaces and
// containers are.
func IsLabel(s string) bool { return len(s) <= maxLabel && isPart(s, lowerCase, "-") }

// IsSubdomain reports whether s is a DNS subdomain in lower case: parts separated by dots. As in
// Kubernetes, and unlike in DNS, a part may be longer than a label.
func IsSubdomain(s string) bool { return areParts(s, lowerCase) }

// IsSubdomainInAnyCase is IsSubdomain for names in which case does not matter.
func IsSubdomainInAnyCase(s string) bool { return areParts(s, anyCase) }

// IsQualifiedPart reports whether s can follow the slash of a qualified name, such as the "nic" of
// "example.com/nic".
func IsQualifiedPart(s string) bool { return len(s) <= maxLabel && isPart(s, anyCase, "-_.") }

func areParts(s, alphanumerics string) bool {
	if len(s) > maxSubdomain {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !isPart(part, alphanumerics, "-") {
			return false
		}
	}
	return true
}

// isPart reports whether s has an alphanumeric at both ends, and between them only such and others.
func isPart(s, alphanumerics, others string) bool {
	return s != "" && strings.Trim(s, alphanumerics+others) == "" &&
		strings.IndexByte(alphanumerics, s[0]) >= 0 && strings.IndexByte(alphanumerics, s[len(s)-1]) >= 0
}
