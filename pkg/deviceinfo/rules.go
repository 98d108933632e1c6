// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"path"
	"strings"
	"unicode"
)

// Rules for single values. A check returns what to change, and whether the value
// is right.

// canonicalPCIAddress is a full address in the spelling of sysfs. Hexadecimal
// digits of either case are taken; the device is at most 1f and the function at
// most 7, for that is how many bits they have.
func canonicalPCIAddress(s string) (string, bool) {
	if len(s) != len("dddd:bb:dd.f") || s[4] != ':' || s[7] != ':' || s[10] != '.' {
		return "", false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 4 || i == 7 || i == 10:
		case !isHex(c),
			i == 8 && c != '0' && c != '1',
			i == 11 && (c < '0' || c > '7'):
			return "", false
		}
	}
	return strings.ToLower(s), true
}

// explainPCIAddress says what is wrong with an address that looks nearly right.
func explainPCIAddress(s string) string {
	if _, ok := guessPCIAddress(s); ok {
		return ""
	}
	domain, rest, _ := strings.Cut(s, ":")
	switch {
	case len(domain) != 4 && len(rest) == len("bb:dd.f"):
		return "the domain has four digits"
	case len(s) != len("dddd:bb:dd.f"):
		return ""
	case s[10] == '.' && (s[11] == '8' || s[11] == '9'):
		return "the function is 0 to 7"
	case s[7] == ':' && isHex(s[8]) && s[8] > '1':
		return "the device is 00 to 1f"
	}
	return ""
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// guessPCIAddress repairs the two mistakes people make: a colon before the
// function, and the domain left out.
func guessPCIAddress(s string) (string, bool) {
	if _, ok := canonicalPCIAddress(s); ok {
		return "", false
	}
	s = strings.TrimSpace(s)
	if i := strings.LastIndexAny(s, ":."); i >= 0 && i == len(s)-2 {
		s = s[:i] + "." + s[i+1:]
	}
	if strings.Count(s, ":") == 1 {
		s = "0000:" + s
	}
	return canonicalPCIAddress(s)
}

// checkVersion takes any 1.MINOR.PATCH.
func checkVersion(s string) (string, bool) {
	parts := strings.Split(s, ".")
	ok := len(parts) == 3
	for _, p := range parts {
		d, rest := digits(p)
		ok = ok && rest == "" && d != "" && len(d) <= 9 && (d == "0" || d[0] != '0')
	}
	switch {
	case ok && parts[0] == "1":
		return "", true
	case ok:
		return "this major version is not supported", false
	case strings.HasPrefix(s, "v") && len(s) > 1:
		if hint, ok := checkVersion(s[1:]); ok || hint != "" {
			return `write it without the "v"`, false
		}
	}
	return "it has the form MAJOR.MINOR.PATCH", false
}

// checkPath takes an absolute, clean path of a file.
func checkPath(s string) (string, bool) {
	switch {
	case s == "":
		return "", false
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		return "a path has no control characters", false
	case s[0] != '/':
		return `the path is relative, and must start with "/"`, false
	case s == "/":
		return "this is the root directory", false
	case path.Clean(s) != s:
		return fmt.Sprintf("write it without \"..\", \".\" and superfluous slashes, such as %q", excerpt(path.Clean(s))), false
	case len(s) > 4095:
		return "a path has at most 4095 bytes", false
	}
	return "", true
}

// checkSocket takes a path that fits into a socket address.
func checkSocket(s string) (string, bool) {
	if strings.HasPrefix(s, "@") {
		return "only a memif socket may be abstract", false
	}
	if hint, ok := checkPath(s); !ok {
		return hint, false
	}
	return checkSocketLength(s)
}

func checkMemifSocket(s string) (string, bool) {
	if !strings.HasPrefix(s, "@") {
		return checkSocket(s)
	}
	if s == "@" {
		return `a name must follow the "@"`, false
	}
	if strings.IndexFunc(s, unicode.IsControl) >= 0 {
		return "a name has no control characters", false
	}
	return checkSocketLength(s)
}

func checkSocketLength(s string) (string, bool) {
	if len(s) > MaxSocketPath {
		return fmt.Sprintf("it has %d bytes, and a socket address (sun_path) holds %d", len(s), MaxSocketPath), false
	}
	return "", true
}

// checkName takes the name of a device in a directory of sysfs.
func checkName(s string) (string, bool) {
	switch {
	case s == "":
		return "", false
	case s == "." || s == ".." || strings.Contains(s, "/"):
		return "it is a name, not a path", false
	case strings.IndexFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) >= 0:
		return "a name has no spaces", false
	case len(s) > 255:
		return "a name has at most 255 bytes", false
	}
	return "", true
}

// checkNames takes names joined with commas.
func checkNames(s string) (string, bool) {
	for name := range strings.SplitSeq(s, ",") {
		if hint, ok := checkName(name); !ok {
			return hint, false
		}
	}
	return "", true
}

// maxNetdev is the length of the longest alternative name of a network device
// (ALTIFNAMSIZ, less the NUL).
const maxNetdev = 127

func checkNetdev(s string) (string, bool) {
	if hint, ok := checkName(s); !ok {
		return hint, false
	}
	if len(s) > maxNetdev {
		return fmt.Sprintf("a network device's name has at most %d bytes", maxNetdev), false
	}
	return "", true
}
