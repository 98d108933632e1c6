// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// maxName bounds the names of RDMA and vDPA devices, in bytes. The kernel keeps
// RDMA names below 64 and sysfs names below 256.
const maxName = 128

// ParseAddress checks a PCI address in BDF form, "dddd:BB:DD.f" (Device
// Information Specification 3.1.3.1), and returns it as the kernel writes it, in
// lower case. The domain may have up to eight digits, as it has behind Intel VMD
// ("10000:01:00.0").
func ParseAddress(s string) (string, error) {
	if _, ok := diag.PCIAddress(s); !ok {
		return "", fmt.Errorf("PCI address %s: it must look like 0000:03:00.3: %w", diag.Quote(s),
			errdefs.ErrInvalidArgument)
	}
	return strings.ToLower(s), nil
}

// checkName accepts the names that a device can have in a sysfs directory. None of them
// leads out of the directory.
func checkName(s string) error {
	isForbidden := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' || r == '\\' }
	rule := ""
	// A leading dot excludes "." and "..", and a slash is forbidden anywhere.
	switch at := strings.IndexFunc(s, isForbidden); {
	case s == "":
		rule = "it is empty"
	case len(s) > maxName:
		rule = fmt.Sprintf("it has %d bytes, more than %d", len(s), maxName)
	case s[0] == '.':
		rule = "it starts with a dot"
	case at >= 0:
		rule = fmt.Sprintf("character %q is not allowed", s[at])
	default:
		return nil
	}
	return fmt.Errorf("device name %s: %s: %w", diag.Quote(s), rule, errdefs.ErrInvalidArgument)
}

// parseNumber returns the decimal number N in prefix+N, as the kernel prints it: no
// sign, no leading zero, at most 32 bits.
func parseNumber(name, prefix string) (uint32, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil && strconv.FormatUint(n, 10) == digits
}

// parseDev reads the content of a sysfs "dev" file, "major:minor\n".
func parseDev(b []byte) (major, minor uint32, err error) {
	text := strings.TrimSuffix(string(b), "\n")
	before, after, _ := strings.Cut(text, ":")
	major, okMajor := parseNumber(before, "")
	minor, okMinor := parseNumber(after, "")
	if !okMajor || !okMinor {
		return 0, 0, fmt.Errorf("it holds %s, not major:minor: %w", diag.Quote(text), errdefs.ErrInvalidArgument)
	}
	return major, minor, nil
}
