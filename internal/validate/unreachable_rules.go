// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/glob"
	"github.com/jackfield/jackfield/internal/reserved"
	"github.com/jackfield/jackfield/pkg/config"
)

// unreachableRules warns about socket roots that do not exist, and patterns of rules that can never
// match.
func (v *validator) unreachableRules(cfg *config.Config) diag.List {
	var out diag.List
	warn := func(field, format string, args ...any) {
		out = append(out, configDiagnostic(cfg, diag.SeverityWarning, field, fmt.Sprintf(format, args...)))
	}
	// A rule allows a path as the configuration has it, and as it resolves.
	var roots []string
	for i, root := range cfg.Sockets.Roots {
		real, exists := v.resolve(root)
		roots = append(roots, root, real)
		field := fmt.Sprintf("sockets.roots[%d]", i)
		if v.checkHost && !exists && cfg.IsWritten(field) {
			warn(field, "found %s: there is no such directory on this host, so that no socket comes from it", diag.Quote(root))
		}
	}
	var named []string
	for _, n := range cfg.Sockets.Named {
		dir, _ := v.resolve(path.Dir(n.Path))
		named = append(named, n.Path, path.Join(dir, path.Base(n.Path)))
	}
	for i := range cfg.Policy.Rules {
		r := &cfg.Policy.Rules[i]
		for j, pattern := range r.Allow.NamedSockets {
			if !matchesAny(glob.CompileName, pattern, slices.Collect(maps.Keys(cfg.Sockets.Named))) {
				warn(fmt.Sprintf("policy.rules[%d].allow.namedSockets[%d]", i, j), "found %s: it matches no name in sockets.named", diag.Quote(pattern))
			}
		}
		for j, pattern := range r.Allow.Sockets {
			if !belowAny(roots, pattern) && !matchesAny(glob.CompilePath, pattern, named) {
				warn(fmt.Sprintf("policy.rules[%d].allow.sockets[%d]", i, j),
					"found %s: it matches nothing below the socket roots (%s) and no path in sockets.named, and sockets come from there alone", diag.Quote(pattern), strings.Join(cfg.Sockets.Roots, ", "))
			}
		}
		for j, port := range r.Allow.Ports {
			if !matchesPort(cfg, port.Port) {
				warn(fmt.Sprintf("policy.rules[%d].allow.ports[%d]", i, j), "found %s: it matches no bridge of vswitches, and ports are created there alone", diag.Quote(port.Port))
			}
		}
		for j, pattern := range r.Allow.Devices {
			st, err := v.host.Stat(pattern)
			if v.checkHost && !strings.Contains(pattern, "*") && err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				warn(fmt.Sprintf("policy.rules[%d].allow.devices[%d]", i, j),
					"found %s: it is a directory on this host, and matches no device node; want %s", diag.Quote(pattern), diag.Quote(pattern+"/*"))
			}
		}
	}
	return out
}

// resolve returns a directory with its symlinks resolved. Of one that is not on this host, it is known that /var/run is a
// symlink to /run on most hosts.
func (v *validator) resolve(dir string) (real string, exists bool) {
	if v.checkHost {
		if real, err := v.host.Resolve(dir); err == nil {
			return real, true
		}
	}
	return reserved.WithoutVar(dir), false
}

// belowAny reports whether the pattern can match a path below one of the roots: up to its first
// star it leads into a root, or to a directory above one.
func belowAny(roots []string, pattern string) bool {
	literal, _, star := strings.Cut(pattern, "*")
	for _, root := range roots {
		root += "/"
		if strings.HasPrefix(literal, root) || star && strings.HasPrefix(root, literal) {
			return true
		}
	}
	return false
}

// matchesAny reports whether a pattern of names, or of paths, matches one of them.
func matchesAny(compile func(string) (glob.Glob, error), pattern string, names []string) bool {
	g, err := compile(pattern)
	return err == nil && slices.ContainsFunc(names, g.Match)
}

// matchesPort reports whether a pattern matches a bridge of the node's vswitches, or a port on no bridge.
func matchesPort(cfg *config.Config, pattern string) bool {
	g, err := glob.CompileName(pattern)
	return err == nil && slices.ContainsFunc(cfg.Vswitches, func(v config.Vswitch) bool {
		return g.Match(v.Name+"/") || slices.ContainsFunc(v.Bridges, func(bridge string) bool { return g.Match(v.Name + "/" + bridge) })
	})
}
