// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// maxName bounds the names of RDMA and vDPA devices, in bytes. The kernel keeps
// RDMA names below 64 and sysfs names below 256.
const maxName = 128

// ParseAddress checks a PCI address in BDF form, "dddd:BB:DD.f" (Device
// Information Specification 3.1.3.1), and gives the kernel's spelling of it:
// lower case. The domain may have up to eight digits, as it has behind Intel VMD
// ("10000:01:00.0").
func ParseAddress(s string) (string, error) {
	bad := func(rule string) (string, error) {
		return "", fmt.Errorf("PCI address %q: %s; it must look like 0000:03:00.3: %w", s, rule, errdefs.ErrInvalidArgument)
	}
	if len(s) > 16 {
		return bad("longer than 16 characters")
	}
	domain, rest, ok := strings.Cut(s, ":")
	if !ok {
		return bad("no colon after the domain")
	}
	bus, rest, ok := strings.Cut(rest, ":")
	if !ok {
		return bad("no colon after the bus")
	}
	device, function, ok := strings.Cut(rest, ".")
	switch {
	case !ok:
		return bad("no dot before the function")
	case len(domain) < 4 || len(domain) > 8 || !isHex(domain):
		return bad("the domain is not 4 to 8 hexadecimal digits")
	case len(bus) != 2 || !isHex(bus):
		return bad("the bus is not 2 hexadecimal digits")
	case len(device) != 2 || !isHex(device) || device > "1f" && device > "1F":
		return bad("the device is not within 00 and 1f")
	case len(function) != 1 || function < "0" || function > "7":
		return bad("the function is not within 0 and 7")
	}
	return strings.ToLower(s), nil
}

func isHex(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	return s != ""
}

// checkName accepts what the kernel can have as the name of a device in a sysfs
// directory, and nothing that could lead out of that directory.
func checkName(s string) error {
	var rule string
	switch {
	case s == "":
		rule = "it is empty"
	case len(s) > maxName:
		rule = fmt.Sprintf("it has %d bytes, more than %d", len(s), maxName)
	case s[0] == '.':
		rule = "it starts with a dot"
	default:
		for i := range len(s) {
			if c := s[i]; c <= ' ' || c >= 0x7f || c == '/' || c == '\\' {
				rule = fmt.Sprintf("character %q is not allowed", c)
				break
			}
		}
	}
	if rule == "" {
		return nil
	}
	if len(s) > maxName {
		s = s[:maxName] + "..."
	}
	return fmt.Errorf("device name %q: %s: %w", s, rule, errdefs.ErrInvalidArgument)
}

// number is the decimal number N in prefix+N, as the kernel prints it: no sign,
// no leading zero, at most 32 bits.
func number(name, prefix string) (uint32, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || digits == "" || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// parseDev reads the content of a sysfs "dev" file, "major:minor\n".
func parseDev(b []byte) (major, minor uint32, err error) {
	text := strings.TrimSuffix(string(b), "\n")
	maj, min, ok := strings.Cut(text, ":")
	if ok {
		var okMaj, okMin bool
		major, okMaj = number(maj, "")
		minor, okMin = number(min, "")
		ok = okMaj && okMin
	}
	if !ok {
		if len(text) > 32 {
			text = text[:32] + "..."
		}
		return 0, 0, fmt.Errorf("it holds %q, not major:minor: %w", text, errdefs.ErrInvalidArgument)
	}
	return major, minor, nil
}
