// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// addNamedSocket adds a socket of the host by the name that the node's configuration gives it. The
// container gets the socket alone, never its directory.
func (p *planner) addNamedSocket(name string, item *Item) error {
	named, ok := p.cfg.Sockets.Named[name]
	if !ok {
		return p.unknownSocketError(name)
	}
	s := &socket{
		viewEntry: viewEntry{att: &attachment.Attachment{}, named: name, creator: config.SideHost},
		path:      named.Path, own: named.At, field: "sockets.named." + name + ".path", await: named.Create == config.SocketWait,
	}
	item.File = p.opts.ConfigName
	return p.deliverSocket(s, edit.Origin{Source: edit.Attachment, Request: item.Request, File: item.File}, item)
}

// unknownSocketError is for a name that the configuration does not have. Which sockets the node has is not for
// everyone to know: a refusal comes first. A running container keeps a socket whose name was removed.
func (p *planner) unknownSocketError(name string) error {
	if _, refused := p.policy.NamedSocket(p.subject, name, policy.SocketPath{}); refused != nil && !p.opts.ForAdministrator {
		return refused
	}
	names := slices.Sorted(maps.Keys(p.cfg.Sockets.Named))
	hint := "; add it to sockets.named in " + p.opts.ConfigName
	if near := diag.Nearest(name, names...); near != "" {
		hint = "; did you mean socket:" + near + "?"
	}
	return fmt.Errorf("the node's configuration names no socket %q%s: %w", name, hint, errdefs.ErrNotFound)
}

// namedSocketPath returns the root and path of a named socket. The root is the socket's directory, whose own
// symlinks are resolved once. While that does not exist, the root is the nearest directory above that does.
func (p *planner) namedSocketPath(s *socket) (socketPath, error) {
	r := p.namedRoots[s.named]
	if err := p.checkDirs(r.name); err != nil {
		return socketPath{}, err
	}
	canonical, err := r.resolve(p.host)
	at := socketPath{root: r.name, canonical: canonical, rel: path.Base(s.path)}
	for err != nil && errdefs.IsNotFound(err) && at.root != "/" {
		at.rel = path.Join(path.Base(at.root), at.rel)
		at.root = path.Dir(at.root)
		at.canonical, err = p.host.Resolve(at.root)
	}
	return at, err
}
