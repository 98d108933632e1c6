// SPDX-License-Identifier: Apache-2.0

package name

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// portPrefix begins the name of every port. Drivers of switches without labels take it for a part of
// the mark.
const portPrefix = "jf"

// Port returns the name of the port on a virtual switch that belongs to a network attachment: CNI's container ID
// and interface. It has 15 bytes, the longest name of a Linux interface.
func Port(containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "/" + ifName))
	return portPrefix + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:13]
}

// IsPort reports whether Port could have returned the name.
func IsPort(s string) bool {
	rest, ok := strings.CutPrefix(s, portPrefix)
	return ok && len(rest) == 13 && strings.Trim(rest, "0123456789abcdefghijklmnopqrstuv") == ""
}
