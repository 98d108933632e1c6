// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// socketRoot is one configured socket root. Its own symlinks are resolved once,
// when the configuration is loaded, or, when the directory did not exist then,
// at the first use after it appeared.
type socketRoot struct {
	name string // as configured

	mu        sync.Mutex
	canonical string // "" until it exists
}

func newSocketRoots(names []string) []*socketRoot {
	roots := make([]*socketRoot, len(names))
	for i, name := range names {
		roots[i] = &socketRoot{name: name}
	}
	return roots
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

// place is where a socket lies: a root and the path below it.
type place struct {
	root      string // as configured
	canonical string // the same, symlinks resolved
	rel       string
}

// names are the spellings of the path by which a policy may know it.
func (p place) names() []string {
	a, b := path.Join(p.root, p.rel), path.Join(p.canonical, p.rel)
	if a == b {
		return []string{a}
	}
	return []string{a, b}
}

// place finds the configured root that a path lies below, by its text: as the
// root is configured, or as it resolves.
func (p *planner) place(file string) (place, error) {
	if path.Clean(file) != file || !path.IsAbs(file) {
		return place{}, fmt.Errorf("found %q, want a clean absolute path: %w", file, errdefs.ErrInvalidArgument)
	}
	if len(file) > sunPath {
		return place{}, fmt.Errorf("%q has %d bytes; the path of a UNIX socket has at most %d: %w", file, len(file), sunPath, errdefs.ErrInvalidArgument)
	}
	var missing error
	for _, r := range p.roots {
		canonical, err := "", p.answering(r.name)
		if err == nil {
			canonical, err = r.resolve(p.host)
		}
		for _, dir := range [...]string{r.name, canonical} {
			rel, ok := below(dir, file)
			if !ok && p.varRunIsRun() {
				// Most hosts have /var/run as a symlink to /run, and both are written.
				rel, ok = below(dir, strings.TrimPrefix(file, "/var"))
			}
			if !ok {
				continue
			}
			if err == nil {
				return place{root: r.name, canonical: canonical, rel: rel}, nil
			}
			missing = err
		}
	}
	if missing != nil {
		return place{}, missing
	}
	return place{}, fmt.Errorf("%q lies below none of the socket roots (%s); if it is right, add its directory to sockets.roots in %s: %w",
		file, strings.Join(p.cfg.Sockets.Roots, ", "), p.source, errdefs.ErrPermissionDenied)
}

// below is what is left of file below dir; false when that is nothing, and for no
// dir.
func below(dir, file string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(file, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok && dir != "" && rel != ""
}

// varRunIsRun reports whether the host's /var/run is /run.
func varRunIsRun(host hostfs.Root) bool {
	real, err := host.Resolve("/var/run")
	return err == nil && real == "/run"
}
