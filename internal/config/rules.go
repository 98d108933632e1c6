// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/glob"
	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// The functions in this file return the rule that a value breaks, or "". So [cmp.Or] of several
// rules is the first broken one.

// require returns the rule unless ok.
func require(ok bool, rule string) string {
	if ok {
		return ""
	}
	return rule
}

// maxPath is PATH_MAX without the NUL.
const maxPath = 4095

// absolute requires an absolute, clean path, not the root.
func absolute(s string) string {
	// The most helpful reason comes first: a path can violate several of these rules.
	switch {
	case !path.IsAbs(s):
		return "must be an absolute path"
	case s == "/":
		return "must be a path below /"
	case path.Clean(s) != s:
		return "must be a path without //, /./, /../ and without / at the end; this is " + diag.Quote(path.Clean(s))
	case len(s) > maxPath:
		return "a path has at most 4095 bytes"
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "a path here holds no control characters"
	}
	return ""
}

// socketPath requires a path that fits the address of a UNIX socket.
func socketPath(s string) string {
	return cmp.Or(absolute(s), require(len(s) <= hostfs.MaxSocketPath, "a socket's path has at most 107 bytes"))
}

// socketRoot requires a directory that contains only sockets.
func socketRoot(s string) string { return ownDirectory(s, "sockets", "sockets are not delivered from") }

// stateDir requires a directory that only Jackfield uses.
func stateDir(s string) string { return ownDirectory(s, "the state", "the state is not kept in") }

// ownDirectory requires a directory for one use, whose name is use. Directories that the system
// shares contain other programs' files.
func ownDirectory(s, use, notIn string) string {
	tree := reserved.Tree(s)
	return cmp.Or(absolute(s),
		require(tree == "", notIn+" "+tree),
		require(!reserved.IsShared(s), "must be a directory of its own for "+use+", not one that the system shares"))
}

// aliasName requires a name that annotations can use before "=". A dot would make it a vendor.
func aliasName(s string) string {
	return require(!strings.Contains(s, ".") && parser.ValidateClassName(s) == nil,
		"an alias begins with a letter, ends with a letter or digit, and holds letters, digits, '_', '-' only")
}

// cdiKind requires vendor.com/class.
func cdiKind(s string) string {
	vendor, class, ok := strings.Cut(s, "/")
	return require(ok && parser.ValidateVendorName(vendor) == nil && parser.ValidateClassName(class) == nil,
		"must be vendor.com/class")
}

func extension(s string) string {
	known := []string{".json", ".yaml", ".yml"}
	return require(slices.Contains(known, s), "must be one of "+strings.Join(known, ", "))
}

// pattern requires a pattern of names.
func pattern(s string) string {
	if _, err := glob.CompileName(s); err != nil {
		return err.Error()
	}
	return ""
}

// pluginName requires an NRI plugin's index and name, in the format of the runtime's log.
func pluginName(s string) string {
	ok := len(s) >= 4 && strings.Trim(s[:2], "0123456789") == "" && s[2] == '-'
	return require(ok, "must be the plugin's index and name, such as 10-device-injector")
}

// notEmpty requires a non-empty string. internal/config/policy checks the rest.
func notEmpty(s string) string {
	return require(s != "", "must be a string that is not empty")
}

func anyText(string) string { return "" }

// contains reports whether p is dir or below it. /var/run and /run are the same directory.
func contains(dir, p string) bool {
	dir, p = reserved.WithoutVar(dir), reserved.WithoutVar(p)
	return p == dir || strings.HasPrefix(p, dir+"/")
}

// orNone accepts an empty string, and values that rule accepts.
func orNone(rule func(string) string) func(string) string {
	return func(s string) string {
		if s == "" {
			return ""
		}
		return rule(s)
	}
}

// userIDs requires "UID" or "UID:GID".
func userIDs(s string) string {
	_, _, ok := (&Sockets{User: s}).UserIDs()
	return require(ok, `must be "UID" or "UID:GID" in numbers`)
}

// keyValue requires an annotation, KEY=VALUE.
func keyValue(s string) string {
	key, value, _ := strings.Cut(s, "=")
	return require(key != "" && value != "", "must be an annotation, KEY=VALUE")
}

// directorySize requires the size of a directory.
func directorySize(s string) string {
	_, ok := quantity.ParseSize(s)
	return require(ok, quantity.Rule)
}

// selinuxLabel requires an SELinux context, user:role:type and a level.
func selinuxLabel(s string) string {
	ok := strings.Count(s, ":") >= 2 && len(s) <= 255 &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
	return require(ok, `must be an SELinux label such as "system_u:object_r:container_file_t:s0"`)
}

// listenAddress requires HOST:PORT or unix:PATH.
func listenAddress(s string) string {
	if path, ok := strings.CutPrefix(s, UnixListen); ok {
		if broken := socketPath(path); broken != "" {
			return broken + " behind " + UnixListen
		}
		return ""
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "must be HOST:PORT (such as 127.0.0.1:9480) or unix:PATH"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "must be a port from 1 to 65535"
	}
	return ""
}
