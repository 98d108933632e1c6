// SPDX-License-Identifier: Apache-2.0

package config

import (
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
	port, ok := portOf(s)
	if !ok {
		return "want HOST:PORT, as 127.0.0.1:9480, or unix:PATH"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "want a port from 1 to 65535"
	}
	return ""
}

// portOf is the port of HOST:PORT, an IPv6 address in brackets, as net.SplitHostPort has
// it: that package makes itself ready in every process that links it, and a hook ends
// before it would be used.
func portOf(s string) (port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", false
	}
	host, port := s[:i], s[i+1:]
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		if host, ok = strings.CutSuffix(inner, "]"); !ok {
			return "", false
		}
	} else if strings.IndexByte(host, ':') >= 0 {
		return "", false
	}
	return port, !strings.ContainsAny(host, "[]") && !strings.ContainsAny(port, "[]")
}

// absoluteOrNone wants an absolute, clean path or nothing.
func absoluteOrNone(s string) string {
	if s == "" {
		return ""
	}
	return absolute(s)
}
