// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// socketRoot is one configured socket root. Its own symlinks are resolved once:
// when the configuration is loaded, or at the first use after the directory was created.
type socketRoot struct {
	name string // as configured

	mu        sync.Mutex
	canonical string // "" until it exists
}

func (r *socketRoot) resolve(host hostfs.Root) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.canonical != "" {
		return r.canonical, nil
	}
	c, err := host.Resolve(r.name)
	if err != nil {
		return "", fmt.Errorf("socket root %q: %w", r.name, err)
	}
	r.canonical = c
	return c, nil
}

// socketPath is the path of a socket, or of its directory: a root and the path below it.
type socketPath struct {
	root      string // as configured
	canonical string // root with symlinks resolved
	rel       string
}

// names returns the spellings of the path that policy is asked about.
func (p socketPath) names() []string {
	return slices.Compact([]string{path.Join(p.root, p.rel), path.Join(p.canonical, p.rel)})
}

// socketPath finds the configured root that a path lies below, by its text: as the root is
// configured, or as it resolves.
func (p *planner) socketPath(file string) (socketPath, error) {
	if path.Clean(file) != file || !path.IsAbs(file) {
		return socketPath{}, fmt.Errorf("invalid value %q: must be a clean absolute path: %w", file, errdefs.ErrInvalidArgument)
	}
	if len(file) > hostfs.MaxSocketPath {
		return socketPath{}, fmt.Errorf("%q has %d bytes; the path of a UNIX socket has at most %d: %w", file, len(file), hostfs.MaxSocketPath, errdefs.ErrInvalidArgument)
	}
	var missing error
	for _, r := range p.roots {
		canonical, err := "", p.checkDirs(r.name)
		if err == nil {
			canonical, err = r.resolve(p.host)
		}
		for _, dir := range [...]string{r.name, canonical} {
			rel, ok := below(dir, file)
			if !ok && p.varRunIsRun() {
				// On most hosts /var/run is a symlink to /run, and both spellings are used.
				rel, ok = below(dir, strings.TrimPrefix(file, "/var"))
			}
			if !ok {
				continue
			}
			if err == nil {
				return socketPath{root: r.name, canonical: canonical, rel: rel}, nil
			}
			missing = err
		}
	}
	if missing != nil {
		return socketPath{}, missing
	}
	return socketPath{}, fmt.Errorf("%q lies below none of the socket roots (%s); if it is right, add its directory to sockets.roots in %s: %w",
		file, strings.Join(p.cfg.Sockets.Roots, ", "), p.opts.ConfigName, errdefs.ErrPermissionDenied)
}

// otherSpellings returns further names of a path under which a rule may deny it: below
// other socket roots whose symlinks lead to the same place, and with /run for /var/run
// if one is a symlink to the other on the host. A root that lies within the path
// is among them, because handing over a directory hands over everything below it.
func (p *planner) otherSpellings(at socketPath) []string {
	var others []string
	full := path.Join(at.canonical, at.rel)
	for _, r := range p.roots {
		if r.name == at.root || p.checkDirs(r.name) != nil {
			continue
		}
		canonical, err := r.resolve(p.host)
		if err != nil {
			continue // it does not exist, so nothing lies below it
		}
		if rel, ok := below(canonical, full); ok {
			others = append(others, path.Join(r.name, rel))
		} else if _, ok := below(full, canonical); ok || canonical == full {
			others = append(others, r.name)
		}
	}
	if !p.varRunIsRun() {
		return others
	}
	for _, name := range slices.Concat(at.names(), others) {
		if rest, ok := strings.CutPrefix(name, "/var/run/"); ok {
			others = append(others, "/run/"+rest)
		} else if strings.HasPrefix(name, "/run/") {
			others = append(others, "/var"+name)
		}
	}
	return others
}

// below returns the path of file below dir; ok is false if it is not below dir, or dir is "".
func below(dir, file string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(file, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok && dir != "" && rel != ""
}
