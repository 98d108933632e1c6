// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/policy"
)

// deliverNamedSocket delivers a socket of the host that an annotation requests by the name that
// the node's configuration gives it.
func (p *planner) deliverNamedSocket(d annotation.Device) {
	item := Item{Kind: KindSocket, Name: d.Socket, Request: "socket " + strconv.Quote(d.Socket), From: d.Key, Optional: d.Optional}
	p.deliver(item, func(item *Item) error {
		return inAnnotation(d.Key, d.Position, p.addNamedSocket(d.Socket, item))
	})
}

// addNamedSocket adds a named socket. The container gets the socket alone, never its directory.
func (p *planner) addNamedSocket(name string, item *Item) error {
	named, ok := p.cfg.Sockets.Named[name]
	if !ok {
		return p.unknownSocketError(name)
	}
	s := &socket{att: &attachment.Attachment{}, name: name, path: named.Path, own: named.At, creator: config.SideHost,
		field: "sockets.named." + name + ".path"}
	item.File = p.source
	s.origin = edits.Origin{Source: edits.Attachment, Request: item.Request, File: p.source, Field: s.field}
	s.entry = viewEntry{att: s.att, named: name, creator: s.creator}
	var err error
	if s.at, err = p.namedSocketPath(name, &named); err != nil {
		return s.fieldError(err)
	}
	if err := p.grantNamedSocket(s, item); err != nil {
		if p.req.HasSocket == nil || !p.req.HasSocket(s.at.canonical, s.at.rel) {
			return err
		}
		item.Notes = append(item.Notes, "it was granted when the container got it")
	}
	s.origin.Rule = item.Rule
	err = checkSocket(p.host, s.at, "its server has not created this socket yet: start the server, or have containers wait with create: wait")
	s.await = named.Create == config.SocketWait
	switch missing := errdefs.IsNotFound(err); {
	case missing && p.awaitsSockets:
	case missing && s.await && p.staged():
		item.Notes = append(item.Notes, "the socket does not exist yet; the container gets it once its server creates it")
	case missing && s.await:
		return s.fieldError(fmt.Errorf("%w; create: wait needs sockets.staging: mount, and sockets are not staged here", err))
	case err != nil:
		return s.fieldError(err)
	}
	if err := s.setPathInContainer(); err != nil {
		return err
	}
	if err := p.placeSocket(s, item); err != nil {
		return err
	}
	if s.entry.note != "" {
		item.Notes = append(item.Notes, s.entry.note)
	}
	item.Outcome = Injected // also if the container has the directory of another socket already
	p.view = append(p.view, s.entry)
	return nil
}

// unknownSocketError is for a name that the configuration does not have. Which sockets the node has is not for
// everyone to know: a refusal comes first. A running container keeps a socket whose name was removed.
func (p *planner) unknownSocketError(name string) error {
	if _, refused := p.policy.NamedSocket(p.subject, policy.NamedSocket{Name: name}); refused != nil && !p.forAdministrator {
		return refused
	}
	names := slices.Sorted(maps.Keys(p.cfg.Sockets.Named))
	hint := "; add it to sockets.named in " + p.source
	if near := diag.Nearest(name, names...); near != "" {
		hint = "; did you mean socket:" + near + "?"
	}
	return fmt.Errorf("the node's configuration names no socket %q%s: %w", name, hint, errdefs.ErrNotFound)
}

// namedSocketPath returns the root and path of a named socket. The root is the socket's directory, whose own
// symlinks are resolved once. While that does not exist, the root is the nearest directory above that does.
func (p *planner) namedSocketPath(name string, named *config.NamedSocket) (socketPath, error) {
	r := p.namedRoots[name]
	if err := p.checkDirs(r.name); err != nil {
		return socketPath{}, err
	}
	canonical, err := r.resolve(p.host)
	at := socketPath{root: r.name, canonical: canonical, rel: path.Base(named.Path)}
	for err != nil && errdefs.IsNotFound(err) && at.root != "/" {
		at.rel = path.Join(path.Base(at.root), at.rel)
		at.root = path.Dir(at.root)
		at.canonical, err = p.host.Resolve(at.root)
	}
	return at, err
}

// grantNamedSocket asks policy for a named socket by its name and by each spelling of its path.
func (p *planner) grantNamedSocket(s *socket, item *Item) error {
	grant, err := p.policy.NamedSocket(p.subject, policy.NamedSocket{Name: s.name, Paths: s.at.names(), Aliases: p.otherSpellings(s.at)})
	if err != nil {
		return err
	}
	item.noteGrant(grant)
	item.Rule = grant.Rule
	return nil
}
