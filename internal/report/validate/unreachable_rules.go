// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/glob"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/vswitchdriver"
)

// findUnreachableRules warns about socket roots and programs of vswitches that do not exist, and patterns of rules that
// can never match.
func (v *Validator) findUnreachableRules(cfg *config.Config) (found diag.List) {
	warn := func(field, value, rule string) {
		line, column := cfg.LineColumn(field)
		found = append(found, &diag.Diagnostic{File: cfg.File(), Line: line, Column: column, Field: field,
			Severity: diag.SeverityWarning,
			Rule:     "found " + diag.Quote(value) + ": " + rule})
	}
	// A rule allows a path as the configuration has it, and as it resolves.
	var roots []string
	for i, root := range cfg.Sockets.Roots {
		real, exists := v.resolve(root)
		roots = append(roots, root, real)
		field := fmt.Sprintf("sockets.roots[%d]", i)
		if v.checkHost && !exists && cfg.IsWritten(field) {
			warn(field, root, "there is no such directory on this host, so that no socket comes from it")
		}
	}
	var sockets []string
	for _, n := range cfg.Sockets.Named {
		dir, _ := v.resolve(path.Dir(n.Path))
		sockets = append(sockets, n.Path, path.Join(dir, path.Base(n.Path)))
	}
	names := slices.Collect(maps.Keys(cfg.Sockets.Named))
	var ports []string
	for i, vswitch := range cfg.Vswitches {
		if v.checkHost {
			if err := vswitchdriver.CheckProgram(v.host, vswitch); err != nil {
				warn(fmt.Sprintf("vswitches[%d].grcli", i), vswitch.Grcli, err.Error()+": install grcli, or correct the key")
			}
		}
		for _, bridge := range append([]string{""}, vswitch.Bridges...) { // "" for a port on no bridge
			ports = append(ports, vswitch.Name+"/"+bridge)
		}
	}
	for i := range cfg.Policy.Rules {
		allow, field := &cfg.Policy.Rules[i].Allow, fmt.Sprintf("policy.rules[%d].allow", i)
		for j, pattern := range allow.NamedSockets {
			if !matchesAny(glob.CompileName, pattern, names) {
				warn(fmt.Sprintf("%s.namedSockets[%d]", field, j), pattern, "it matches no name in sockets.named")
			}
		}
		for j, pattern := range allow.Sockets {
			if !belowAny(roots, pattern) && !matchesAny(glob.CompilePath, pattern, sockets) {
				warn(fmt.Sprintf("%s.sockets[%d]", field, j), pattern,
					"it matches nothing below the socket roots ("+strings.Join(cfg.Sockets.Roots,
						", ")+") and no path in sockets.named, and sockets come from there alone")
			}
		}
		for j, port := range allow.Ports {
			if !matchesAny(glob.CompileName, port.Port, ports) {
				warn(fmt.Sprintf("%s.ports[%d]", field, j), port.Port, "it matches no bridge of vswitches, and ports are created "+
					"there alone")
			}
		}
		for j, pattern := range allow.Devices {
			if v.checkHost && !strings.Contains(pattern, "*") && v.isDir(pattern) {
				warn(fmt.Sprintf("%s.devices[%d]", field, j), pattern, "it is a directory on this host, and matches no device "+
					"node; use "+diag.Quote(pattern+"/*"))
			}
		}
	}
	return found
}

// resolve returns a directory with its symlinks resolved. Of one that is not on this host, it is known that /var/run is
// a symlink to /run on most hosts.
func (v *Validator) resolve(dir string) (real string, exists bool) {
	if v.checkHost {
		if real, err := v.host.Resolve(dir); err == nil {
			return real, true
		}
	}
	return reserved.WithoutVar(dir), false
}

// belowAny reports whether the pattern can match a path below one of the roots: up to its first
// star it leads into a root, or to a directory above one. A single star stays in its directory.
func belowAny(roots []string, pattern string) bool {
	// The part before the first star is literal, so it decides in which directory the pattern begins.
	literal, _, star := strings.Cut(pattern, "*")
	anyDepth := strings.Contains(pattern, "**")
	for _, root := range roots {
		root += "/"
		isDeep := anyDepth || strings.Count(pattern, "/") >= strings.Count(root, "/")
		if strings.HasPrefix(literal, root) || star && isDeep && strings.HasPrefix(root, literal) {
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
