// SPDX-License-Identifier: Apache-2.0

package name

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxInterface is IFNAMSIZ of linux/if.h without the NUL.
const maxInterface = 15

// InterfaceRule is the rule of IsInterface, for errors.
const InterfaceRule = `1 to 15 bytes without "/", ":" and white space, and not "." or ".."`

// IsInterface reports whether s can name a network interface: the kernel's rule (dev_valid_name), and only printable
// characters, because the name gets into paths, variables and log lines.
func IsInterface(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= maxInterface && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '/' || r == ':' || r == ' ' || r == utf8.RuneError || !unicode.IsPrint(r)
	})
}
