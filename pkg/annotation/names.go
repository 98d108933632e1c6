// SPDX-License-Identifier: Apache-2.0

package annotation

import "strings"

const (
	maxDeviceID = 253
	// maxInterface is IFNAMSIZ without the NUL.
	maxInterface = 15
)

// isDeviceID reports whether s can be a device plugin's ID: printable ASCII without a space.
func isDeviceID(s string) bool {
	return s != "" && len(s) <= maxDeviceID && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// isInterface reports whether s can name a network interface. The kernel accepts more, but the name
// becomes a directory and a variable.
func isInterface(s string) bool {
	const characters = "-_.ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	return s != "" && s != "." && s != ".." && len(s) <= maxInterface && strings.Trim(s, characters) == ""
}
