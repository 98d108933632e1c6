// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// socketRoots are the directories of the host that sockets are delivered from. A path is located below one of them by
// its text, so that policy decides before the path is opened.
type socketRoots struct {
	host        hostfs.Root
	opts        *Options
	list        []*socketRoot
	named       map[string]*socketRoot // the directories of named sockets, by name
	varRunIsRun func() bool            // whether the host's /var/run is /run; checked once
}

func newSocketRoots(host hostfs.Root, cfg *config.Config, opts *Options) *socketRoots {
	r := &socketRoots{host: host, opts: opts, named: make(map[string]*socketRoot)}
	for _, name := range cfg.Sockets.Roots {
		r.list = append(r.list, &socketRoot{name: name})
	}
	for name, s := range cfg.Sockets.Named {
		r.named[name] = &socketRoot{name: path.Dir(s.Path)}
	}
	r.varRunIsRun = sync.OnceValue(func() bool {
		real, err := host.Resolve("/var/run")
		return err == nil && real == "/run"
	})
	return r
}

// prefetch resolves all roots.
func (r *socketRoots) prefetch() {
	r.varRunIsRun()
	for _, root := range slices.AppendSeq(slices.Clone(r.list), maps.Values(r.named)) {
		_, _ = root.resolve(r.host)
	}
}

// locate returns the root and path of a named socket or, without a name, the configured root that a path lies below: as
// the root is configured, or as it resolves.
func (r *socketRoots) locate(name, file string) (socketPath, error) {
	if name != "" {
		return r.locateNamed(r.named[name], file)
	}
	if path.Clean(file) != file || !path.IsAbs(file) {
		return socketPath{}, fmt.Errorf("invalid value %q: must be a clean absolute path: %w",
			file, errdefs.ErrInvalidArgument)
	}
	if len(file) > hostfs.MaxSocketPath {
		return socketPath{}, fmt.Errorf("%q has %d bytes; the path of a UNIX socket has at most %d: %w",
			file, len(file), hostfs.MaxSocketPath, errdefs.ErrInvalidArgument)
	}
	var names []string
	var missing error
	for _, root := range r.list {
		names = append(names, root.name)
		canonical, err := r.resolve(root)
		for _, dir := range [...]string{root.name, canonical} {
			rel, ok := below(dir, file)
			if !ok && r.varRunIsRun() {
				// On most hosts /var/run is a symlink to /run, and both spellings are used.
				rel, ok = below(dir, strings.TrimPrefix(file, "/var"))
			}
			if !ok {
				continue
			}
			if err == nil {
				return socketPath{root: root.name, canonical: canonical, rel: rel}, nil
			}
			missing = err
		}
	}
	if missing != nil {
		return socketPath{}, missing
	}
	return socketPath{}, fmt.Errorf("%q lies below none of the socket roots (%s); "+
		"if it is right, add its directory to sockets.roots in %s: %w",
		file, strings.Join(names, ", "), r.opts.ConfigName, errdefs.ErrPermissionDenied)
}

// locateNamed returns the root and path of a named socket. The root is the socket's directory. While that does not
// exist, the root is the nearest directory above that does.
func (r *socketRoots) locateNamed(root *socketRoot, file string) (socketPath, error) {
	if err := r.opts.checkDirs(root.name); err != nil {
		return socketPath{}, err
	}
	canonical, err := root.resolve(r.host)
	at := socketPath{root: root.name, canonical: canonical, rel: path.Base(file)}
	for err != nil && errdefs.IsNotFound(err) && at.root != "/" {
		at.rel = path.Join(path.Base(at.root), at.rel)
		at.root = path.Dir(at.root)
		at.canonical, err = r.host.Resolve(at.root)
	}
	return at, err
}

// resolve returns a root's canonical path, unless the root is unresponsive.
func (r *socketRoots) resolve(root *socketRoot) (string, error) {
	if err := r.opts.checkDirs(root.name); err != nil {
		return "", err
	}
	return root.resolve(r.host)
}

// spellings returns a path for a decision of policy. Its own path is below the root as configured.
func (r *socketRoots) spellings(at socketPath) policy.SocketPath {
	names := at.names()
	return policy.SocketPath{Path: names[0], Spellings: names[1:], Aliases: r.aliases(at, names)}
}

// aliases returns further names of a path by which a rule can deny it: below
// other socket roots whose symlinks lead to the same place, and with /run for /var/run
// if one is a symlink to the other on the host. A root that lies within the path
// is among them, because handing over a directory hands over everything below it.
func (r *socketRoots) aliases(at socketPath, names []string) []string {
	var aliases []string
	full := names[len(names)-1] // below the canonical root
	for _, root := range r.list {
		if root.name == at.root {
			continue
		}
		canonical, err := r.resolve(root)
		if err != nil {
			continue // it does not exist, so nothing lies below it
		}
		if rel, ok := below(canonical, full); ok {
			aliases = append(aliases, path.Join(root.name, rel))
		} else if _, ok := below(full, canonical); ok || canonical == full {
			aliases = append(aliases, root.name)
		}
	}
	if !r.varRunIsRun() {
		return aliases
	}
	for _, name := range slices.Concat(names, aliases) {
		if rest, ok := strings.CutPrefix(name, "/var/run/"); ok {
			aliases = append(aliases, "/run/"+rest)
		} else if strings.HasPrefix(name, "/run/") {
			aliases = append(aliases, "/var"+name)
		}
	}
	return aliases
}

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

// names returns the spellings of the path by which rules grant it. The last one is below the canonical root.
func (p socketPath) names() []string {
	configured := path.Join(p.root, p.rel)
	if p.root == p.canonical {
		return []string{configured}
	}
	return []string{configured, path.Join(p.canonical, p.rel)}
}

// below returns the path of file below dir; ok is false if it is not below dir, or dir is "".
func below(dir, file string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(file, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok && dir != "" && rel != ""
}
