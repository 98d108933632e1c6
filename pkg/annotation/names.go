// SPDX-License-Identifier: Apache-2.0

package annotation

import "regexp"

// The limits of names in annotations. The patterns do not count: compiling a counted repetition
// takes longer than everything else that a program does at its start.
const (
	maxDeviceID = 253
	// maxInterface is IFNAMSIZ without the NUL.
	maxInterface = 15
)

var (
	deviceIDPattern  = regexp.MustCompile(`^[!-~]+$`)
	interfacePattern = regexp.MustCompile(`^[-A-Za-z0-9_.]+$`)
)

// isDeviceID reports whether s can be a device plugin's ID: printable ASCII without a space.
func isDeviceID(s string) bool { return len(s) <= maxDeviceID && deviceIDPattern.MatchString(s) }

// isInterface reports whether s can name a network interface. The kernel accepts more, but the name
// becomes a directory and a variable.
func isInterface(s string) bool {
	return s != "." && s != ".." && len(s) <= maxInterface && interfacePattern.MatchString(s)
}
