// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/config"
)

// unreachableRules warns of socket roots that are not there, and of patterns of rules that nothing can ever match.
func (v *validator) unreachableRules(cfg *config.Config) []finding {
	var out []finding
	warn := func(field, format string, args ...any) {
		out = append(out, configFinding(cfg, severityWarning, field, fmt.Sprintf(format, args...)))
	}
	roots := make([]string, 0, 2*len(cfg.Sockets.Roots))
	for i, root := range cfg.Sockets.Roots {
		roots = append(roots, withoutVar(root))
		if !v.checkHost {
			continue
		}
		real, err := v.host.Resolve(root)
		if err == nil {
			roots = append(roots, withoutVar(real))
			continue
		}
		field := fmt.Sprintf("sockets.roots[%d]", i)
		if isWritten(cfg, field) {
			warn(field, "found %s: there is no such directory on this host, so that no socket comes from it", quoted(root))
		}
	}
	for i := range cfg.Policy.Rules {
		r := &cfg.Policy.Rules[i]
		for j, pattern := range r.Allow.Sockets {
			if !belowAny(roots, pattern) {
				warn(fmt.Sprintf("policy.rules[%d].allow.sockets[%d]", i, j),
					"found %s: it matches nothing below the socket roots (%s), and sockets come from there alone", quoted(pattern), strings.Join(cfg.Sockets.Roots, ", "))
			}
		}
		for j, pattern := range r.Allow.Devices {
			st, err := v.host.Stat(pattern)
			if v.checkHost && !strings.Contains(pattern, "*") && err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				warn(fmt.Sprintf("policy.rules[%d].allow.devices[%d]", i, j),
					"found %s: it is a directory on this host, and matches no device node; want %s", quoted(pattern), quoted(pattern+"/*"))
			}
		}
	}
	return out
}

// isWritten reports whether the file itself has the field, which is not a default then.
func isWritten(cfg *config.Config, field string) bool {
	line, _ := cfg.LineColumn(field)
	return line > 0
}

// withoutVar is a path as it is where /var/run is /run.
func withoutVar(p string) string {
	if strings.HasPrefix(p, "/var/run/") {
		return p[len("/var"):]
	}
	return p
}

// belowAny reports whether the pattern can match a path below one of the roots: up to its first star it leads into
// a root, or to a directory above one.
func belowAny(roots []string, pattern string) bool {
	literal, _, star := strings.Cut(withoutVar(pattern), "*")
	for _, root := range roots {
		root += "/"
		if strings.HasPrefix(literal, root) || star && strings.HasPrefix(root, literal) {
			return true
		}
	}
	return false
}
