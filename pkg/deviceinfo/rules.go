// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// This file holds the rules for single values. A check returns a hint for an invalid value, and whether the value is
// valid.

// isFullPCIAddress reports whether s is a PCI address with a domain. The device has five bits, so it
// is at most 1f, and the function has three.
func isFullPCIAddress(s string) bool {
	_, wellFormed := diag.PCIAddress(s)
	return wellFormed && len(s) == len("dddd:bb:dd.f")
}

// explainPCIAddress returns the fault of a nearly valid address.
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
	case s[7] == ':' && strings.ContainsRune("23456789abcdefABCDEF", rune(s[8])):
		return "the device is 00 to 1f"
	}
	return ""
}

// guessPCIAddress corrects the two usual mistakes: a colon before the function, and missing
// digits.
func guessPCIAddress(s string) (string, bool) {
	if isFullPCIAddress(s) {
		return "", false
	}
	s = strings.TrimSpace(s)
	if i := strings.LastIndexAny(s, ":."); i >= 0 && i == len(s)-2 {
		s = s[:i] + "." + s[i+1:]
	}
	address, _ := diag.PCIAddress(s)
	return address, len(address) == len("dddd:bb:dd.f")
}

// checkVersion accepts any 1.MINOR.PATCH.
func checkVersion(s string) (string, bool) {
	parts := strings.Split(s, ".")
	isVersion := len(parts) == 3
	for _, part := range parts {
		n, err := strconv.ParseUint(part, 10, 30)
		isVersion = isVersion && err == nil && strconv.FormatUint(n, 10) == part
	}
	switch {
	case isVersion && parts[0] == "1":
		return "", true
	case isVersion:
		return "this major version is not supported", false
	case strings.HasPrefix(s, "v"):
		return `write it without the "v"`, false
	}
	return "it has the form MAJOR.MINOR.PATCH", false
}

// checkPath accepts an absolute, clean path of a file.
func checkPath(s string) (string, bool) {
	// The hints go from the coarse fault to the fine one.
	switch {
	case s == "":
		return "", false
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		return "a path has no control characters", false
	case s[0] != '/':
		return `the path is relative; it must start with "/"`, false
	case s == "/":
		return "this is the root directory", false
	case path.Clean(s) != s:
		return fmt.Sprintf("write it without \"..\", \".\" and extra slashes, such as %q", excerpt(path.Clean(s))), false
	case len(s) > 4095:
		return "a path has at most 4095 bytes", false
	}
	return "", true
}

// checkSocket accepts a path that fits into a socket address.
func checkSocket(s string) (string, bool) {
	if strings.HasPrefix(s, "@") {
		return "only a memif socket may be abstract", false
	}
	return checkMemifSocket(s)
}

// checkMemifSocket is like checkSocket, but also accepts "@" and the name of an abstract socket.
func checkMemifSocket(s string) (string, bool) {
	if name, abstract := strings.CutPrefix(s, "@"); !abstract {
		if hint, ok := checkPath(s); !ok {
			return hint, false
		}
	} else if name == "" {
		return `a name must follow the "@"`, false
	} else if strings.ContainsFunc(name, unicode.IsControl) {
		return "a name has no control characters", false
	}
	if len(s) > maxSocketPath {
		return fmt.Sprintf("it has %d bytes, and a socket address (sun_path) holds %d", len(s), maxSocketPath), false
	}
	return "", true
}

// checkName accepts the name of a device in a sysfs directory.
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

// checkNames accepts names separated by commas.
func checkNames(s string) (string, bool) {
	for name := range strings.SplitSeq(s, ",") {
		if hint, ok := checkName(name); !ok {
			return hint, false
		}
	}
	return "", true
}

// maxNetdev is the length in bytes of the longest alternative name of a network device
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
