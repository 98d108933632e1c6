// SPDX-License-Identifier: Apache-2.0

package name

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// portPrefix begins the name of every port. For switches without labels, it is part of Jackfield's
// mark.
const portPrefix = "jf"

// Port returns the name of a network attachment's port on a virtual switch. It depends on CNI's
// container ID and the interface. It has 15 bytes, the maximum for a Linux interface.
func Port(containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "/" + ifName))
	return portPrefix + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:13]
}

// IsPort reports whether Port could have returned the name.
func IsPort(s string) bool {
	rest, ok := strings.CutPrefix(s, portPrefix)
	return ok && len(rest) == 13 && strings.Trim(rest, "0123456789abcdefghijklmnopqrstuv") == ""
}
