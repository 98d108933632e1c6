// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/jackfield/jackfield/internal/quantity"
)

// The functions in this file return the rule that a value breaks, or "".

// maxPath is PATH_MAX without the NUL.
const maxPath = 4095

// absolute wants an absolute, clean path, not the root.
func absolute(s string) string {
	switch {
	case !path.IsAbs(s):
		return "want an absolute path"
	case s == "/":
		return "want a path below /"
	case path.Clean(s) != s:
		return "want a path without //, /./, /../ and without / at the end; this is " + quote(path.Clean(s))
	case len(s) > maxPath:
		return "a path has at most 4095 bytes"
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "a path here holds no control characters"
	}
	return ""
}

// socketRoot wants a directory that holds sockets and nothing else, by its
// name: what the system shares holds everybody's.
func socketRoot(s string) string {
	if broken := absolute(s); broken != "" {
		return broken
	}
	for _, dir := range []string{"/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/boot"} {
		if s == dir || strings.HasPrefix(s, dir+"/") {
			return "sockets are not delivered from " + dir
		}
	}
	for _, dir := range []string{"/home", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/lib", "/var/run", "/var/tmp", "/lib", "/lib64"} {
		if s == dir {
			return "want a directory of its own for sockets, not one that the system shares"
		}
	}
	return ""
}

// stateDir wants a directory that Jackfield can have for itself.
func stateDir(s string) string {
	if broken := socketRoot(s); broken != "" {
		return strings.NewReplacer("sockets are not delivered from", "the state is not kept in", "for sockets", "for the state").Replace(broken)
	}
	return ""
}

// aliasName wants a name that annotations can use before "=". It has no dot,
// so that it cannot be taken for a vendor.
func aliasName(s string) string {
	if strings.Contains(s, ".") || parser.ValidateClassName(s) != nil {
		return "an alias begins with a letter, ends with a letter or digit, and holds letters, digits, '_', '-' only"
	}
	return ""
}

// cdiKind wants vendor.com/class.
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

// pattern wants a pattern of names.
func pattern(s string) string {
	switch {
	case s == "":
		return "want a pattern; * stands for any characters"
	case strings.Contains(s, "**"), strings.ContainsAny(s, `?[]{}\`), strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return `want letters, digits and punctuation without ? [ ] { } \ ; * stands for any characters, ** is for paths`
	}
	return ""
}

// pluginName wants an NRI plugin's name with its index, as the runtime logs it.
func pluginName(s string) string {
	if len(s) < 4 || s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9' || s[2] != '-' {
		return "want the plugin's index and name, such as 10-device-injector"
	}
	return ""
}

// notEmpty wants a string that is not empty; pkg/policy knows the rest.
func notEmpty(s string) string {
	if s == "" {
		return "want a string that is not empty"
	}
	return ""
}

func anyText(string) string { return "" }

// contains reports whether dir is p or above it. /var/run and /run are taken as
// one, which they are wherever there is a /run.
func contains(dir, p string) bool {
	dir, p = run(dir), run(p)
	return p == dir || strings.HasPrefix(p, dir+"/")
}

func run(p string) string {
	if rest, ok := strings.CutPrefix(p, "/var/run/"); ok {
		return "/run/" + rest
	}
	return p
}

// userOrNone is "UID" or "UID:GID".
func userOrNone(s string) string {
	if _, _, ok := (&Sockets{User: s}).UserIDs(); s != "" && !ok {
		return `want "UID" or "UID:GID" in numbers`
	}
	return ""
}

// sizeOrNone is the size of a directory.
func sizeOrNone(s string) string {
	if _, ok := quantity.ParseSize(s); s != "" && !ok {
		return quantity.Rule
	}
	return ""
}

// labelOrNone is an SELinux context: user:role:type, and a level.
func labelOrNone(s string) string {
	if s != "" && (strings.Count(s, ":") < 2 || len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })) {
		return `want an SELinux label such as "system_u:object_r:container_file_t:s0"`
	}
	return ""
}
