// SPDX-License-Identifier: Apache-2.0

package resolve

import "strings"

// Addresses are told from other text here, as package net tells them, without that
// package: making itself ready it takes a process that ends at once, as a hook does, a
// twentieth of its time.

// isIP reports whether s is an IP address without a zone, as net.ParseIP takes it.
func isIP(s string) bool { return addressBits(s) > 0 }

// isCIDR reports whether s is an IP address and a prefix length, as net.ParseCIDR takes
// it.
func isCIDR(s string) bool {
	address, length, ok := strings.Cut(s, "/")
	bits := addressBits(address)
	if !ok || bits == 0 || length == "" {
		return false
	}
	n := 0
	for i := range len(length) {
		c := length[i]
		if c < '0' || c > '9' {
			return false
		}
		if n = 10*n + int(c-'0'); n > bits {
			return false
		}
	}
	return true
}

// addressBits is the length of an address in bits, 0 for what is none.
func addressBits(s string) int {
	switch {
	case strings.IndexByte(s, ':') >= 0:
		if isIPv6(s) {
			return 128
		}
	case isIPv4(s):
		return 32
	}
	return 0
}

// isIPv4 takes four numbers from 0 to 255, without leading zeros, which some read as
// octal.
func isIPv4(s string) bool {
	fields := 0
	for more := true; more; fields++ {
		var field string
		field, s, more = strings.Cut(s, ".")
		if field == "" || len(field) > 3 || len(field) > 1 && field[0] == '0' {
			return false
		}
		n := 0
		for i := range len(field) {
			if field[i] < '0' || field[i] > '9' {
				return false
			}
			n = 10*n + int(field[i]-'0')
		}
		if n > 255 {
			return false
		}
	}
	return fields == 4
}

// isIPv6 takes the forms of RFC 4291, section 2.2.
func isIPv6(s string) bool {
	const most = 8 // fields of 16 bits
	front, back, short := strings.Cut(s, "::")
	if !short {
		n, ok := ipv6Fields(s, true)
		return ok && n == most
	}
	before, after := 0, 0
	ok := true
	if front != "" {
		before, ok = ipv6Fields(front, false)
	}
	if ok && back != "" {
		after, ok = ipv6Fields(back, true)
	}
	// The two colons stand for one field at least.
	return ok && before+after < most
}

// ipv6Fields counts fields of hexadecimal digits. The last two may be an IPv4 address,
// where the end is the address's.
func ipv6Fields(s string, end bool) (n int, ok bool) {
	for more := true; more; n++ {
		var field string
		field, s, more = strings.Cut(s, ":")
		if end && !more && strings.IndexByte(field, '.') >= 0 {
			return n + 2, isIPv4(field)
		}
		if field == "" || len(field) > 4 {
			return 0, false
		}
		for i := range len(field) {
			if _, ok := hexDigit(field[i]); !ok {
				return 0, false
			}
		}
	}
	return n, true
}

// macAddress is s as six bytes with colons between them, in small letters, where it is a
// hardware address of six bytes in one of the forms that net.ParseMAC takes.
func macAddress(s string) (string, bool) {
	size, separator := 2, byte(0)
	switch len(s) {
	case 17: // 00-00-5e-00-53-01, 00:00:5e:00:53:01
		if separator = s[2]; separator != ':' && separator != '-' {
			return "", false
		}
	case 14: // 0000.5e00.5301
		size, separator = 4, '.'
	case 12: // 00005e005301
		size = 12
	default:
		return "", false
	}
	out := make([]byte, 0, 17)
	digits := 0
	for i := range len(s) {
		if i%(size+1) == size {
			if s[i] != separator {
				return "", false
			}
			continue
		}
		c, ok := hexDigit(s[i])
		if !ok {
			return "", false
		}
		if digits > 0 && digits%2 == 0 {
			out = append(out, ':')
		}
		out = append(out, c)
		digits++
	}
	return string(out), true
}

// hexDigit is a hexadecimal digit as a small letter.
func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9', 'a' <= c && c <= 'f':
		return c, true
	case 'A' <= c && c <= 'F':
		return c + 'a' - 'A', true
	}
	return 0, false
}
