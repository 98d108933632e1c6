// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net"
	"strings"
)

// IsIP reports whether s is <ip>[/<prefix>].
func IsIP(s string) bool {
	if strings.Contains(s, "/") {
		_, _, err := net.ParseCIDR(s)
		return err == nil
	}
	return net.ParseIP(s) != nil
}
