// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/glob"
	"github.com/jackfield/jackfield/internal/quantity"
	"github.com/jackfield/jackfield/internal/reserved"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// The functions in this file return why a value is invalid, or "".

// maxPath is PATH_MAX without the NUL.
const maxPath = 4095

// absolute requires an absolute, clean path, not the root.
func absolute(s string) string {
	switch {
	case !path.IsAbs(s):
		return "want an absolute path"
	case s == "/":
		return "want a path below /"
	case path.Clean(s) != s:
		return "want a path without //, /./, /../ and without / at the end; this is " + diag.Quote(path.Clean(s))
	case len(s) > maxPath:
		return "a path has at most 4095 bytes"
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "a path here holds no control characters"
	}
	return ""
}

// socketPath requires a path that fits the address of a UNIX socket.
func socketPath(s string) string {
	if broken := absolute(s); broken != "" {
		return broken
	}
	if len(s) > hostfs.MaxSocketPath {
		return "a socket's path has at most 107 bytes"
	}
	return ""
}

// socketRoot requires a directory that may hold only sockets.
func socketRoot(s string) string { return ownDirectory(s, "sockets", "sockets are not delivered from") }

// stateDir requires a directory that only Jackfield uses.
func stateDir(s string) string { return ownDirectory(s, "the state", "the state is not kept in") }

// ownDirectory requires a directory with one use, by its name. Directories that the system shares hold files of
// others.
func ownDirectory(s, use, notIn string) string {
	if broken := absolute(s); broken != "" {
		return broken
	}
	if tree := reserved.Tree(s); tree != "" {
		return notIn + " " + tree
	}
	if reserved.IsShared(s) {
		return "want a directory of its own for " + use + ", not one that the system shares"
	}
	return ""
}

// aliasName requires a name that annotations can use before "=". It has no dot, which would make it a
// vendor.
func aliasName(s string) string {
	if strings.Contains(s, ".") || parser.ValidateClassName(s) != nil {
		return "an alias begins with a letter, ends with a letter or digit, and holds letters, digits, '_', '-' only"
	}
	return ""
}

// cdiKind requires vendor.com/class.
func cdiKind(s string) string {
	vendor, class, ok := strings.Cut(s, "/")
	if !ok || parser.ValidateVendorName(vendor) != nil || parser.ValidateClassName(class) != nil {
		return "want vendor.com/class"
	}
	return ""
}

func extension(s string) string {
	known := []string{".json", ".yaml", ".yml"}
	if !slices.Contains(known, s) {
		return "want one of " + strings.Join(known, ", ")
	}
	return ""
}

// pattern requires a pattern of names.
func pattern(s string) string {
	if _, err := glob.CompileName(s); err != nil {
		return err.Error()
	}
	return ""
}

// pluginName requires an NRI plugin's index and name, as the runtime logs them.
func pluginName(s string) string {
	if len(s) < 4 || s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9' || s[2] != '-' {
		return "want the plugin's index and name, such as 10-device-injector"
	}
	return ""
}

// notEmpty requires a string that is not empty. pkg/policy checks the rest.
func notEmpty(s string) string {
	if s == "" {
		return "want a string that is not empty"
	}
	return ""
}

func anyText(string) string { return "" }

// contains reports whether dir is p or above it. /var/run and /run are the same directory.
func contains(dir, p string) bool {
	dir, p = reserved.WithoutVar(dir), reserved.WithoutVar(p)
	return p == dir || strings.HasPrefix(p, dir+"/")
}

// orNone accepts an empty string, and what rule accepts.
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
	if _, _, ok := (&Sockets{User: s}).UserIDs(); !ok {
		return `want "UID" or "UID:GID" in numbers`
	}
	return ""
}

// keyValue requires an annotation, KEY=VALUE.
func keyValue(s string) string {
	if key, value, ok := strings.Cut(s, "="); !ok || key == "" || value == "" {
		return "want an annotation, KEY=VALUE"
	}
	return ""
}

// directorySize requires the size of a directory.
func directorySize(s string) string {
	if _, ok := quantity.ParseSize(s); !ok {
		return quantity.Rule
	}
	return ""
}

// selinuxLabel requires an SELinux context, user:role:type and a level.
func selinuxLabel(s string) string {
	if strings.Count(s, ":") < 2 || len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return `want an SELinux label such as "system_u:object_r:container_file_t:s0"`
	}
	return ""
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
		return "want HOST:PORT, as 127.0.0.1:9480, or unix:PATH"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "want a port from 1 to 65535"
	}
	return ""
}
