// SPDX-License-Identifier: Apache-2.0

package name

import (
	"regexp"
	"strings"
	"sync"
)

const (
	maxLabel     = 63
	maxSubdomain = 253

	lowerAlphanumerics = "abcdefghijklmnopqrstuvwxyz0123456789"
	alphanumerics      = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + lowerAlphanumerics
)

// IsLabel reports whether s is a DNS label in lower case (RFC 1123), as names of namespaces and
// containers are.
func IsLabel(s string) bool { return len(s) <= maxLabel && isPart(s, lowerAlphanumerics, "-") }

// IsSubdomain reports whether s is a DNS subdomain in lower case: parts separated by dots. As in
// Kubernetes, and unlike in DNS, a part may be longer than a label.
func IsSubdomain(s string) bool { return areParts(s, lowerAlphanumerics) }

// IsSubdomainInAnyCase is like IsSubdomain, but also accepts upper case.
func IsSubdomainInAnyCase(s string) bool { return areParts(s, alphanumerics) }

// IsQualifiedPart reports whether s can follow the slash of a qualified name, such as the "nic" of
// "example.com/nic".
func IsQualifiedPart(s string) bool { return len(s) <= maxLabel && isPart(s, alphanumerics, "-_.") }

// areParts reports whether s is parts separated by dots. A part may contain a hyphen.
func areParts(s, ends string) bool {
	if len(s) > maxSubdomain {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !isPart(part, ends, "-") {
			return false
		}
	}
	return true
}

// isPart reports whether s begins and ends with a character of ends, and has only characters of ends and others.
func isPart(s, ends, others string) bool {
	for i := range len(s) {
		atEnd := i == 0 || i == len(s)-1
		if strings.IndexByte(ends, s[i]) < 0 && (atEnd || strings.IndexByte(others, s[i]) < 0) {
			return false
		}
	}
	return s != ""
}

// uuid is compiled when it is first used: most commands and hooks do not need it.
var uuid = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[[:xdigit:]]{8}(-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}`)
})

// HasUUID reports whether a text has a UUID in it.
func HasUUID(text string) bool { return uuid().MatchString(text) }

// IsUID reports whether a text is the UID of an object: a UUID in lower case.
func IsUID(text string) bool {
	return len(text) == 36 && strings.ToLower(text) == text && HasUUID(text)
}
