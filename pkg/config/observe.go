// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"strconv"
	"strings"
)

// Metrics says where the NRI plugin serves metrics and its health.
type Metrics struct {
	// Listen is HOST:PORT, unix:PATH with a host path, or empty for nowhere.
	Listen string
	// PProf serves the Go profiles as well.
	PProf bool
}

// AuditLog says where the NRI plugin writes what it gave and refused.
type AuditLog struct {
	// File is the host path of a file of its own; empty for none.
	File string
}

// UnixListen is what an address of a socket in the file system begins with.
const UnixListen = "unix:"

// listenAddress wants HOST:PORT or unix:PATH, or nothing.
func listenAddress(s string) string {
	if s == "" {
		return ""
	}
	if path, ok := strings.CutPrefix(s, UnixListen); ok {
		if broken := absolute(path); broken != "" {
			return broken + " behind " + UnixListen
		}
		if len(path) > 107 {
			return "a socket's path has at most 107 bytes"
		}
		return ""
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "want HOST:PORT, as 127.0.0.1:9480, or unix:PATH"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "want a port from 1 to 65535"
	}
	return ""
}

// absoluteOrNone wants an absolute, clean path or nothing.
func absoluteOrNone(s string) string {
	if s == "" {
		return ""
	}
	return absolute(s)
}
