// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
)

// grantSocket asks policy for the socket under each spelling of its path, and for a named socket
// also by its name.
func (p *planner) grantSocket(s *socket, item *Item) error {
	var grant policy.Grant
	var err error
	if s.named != "" {
		grant, err = p.policy.NamedSocket(p.subject, s.named, p.spellings(s.at))
	} else if err = p.checkPortOwner(s); err == nil {
		grant, err = p.policy.SocketAt(p.subjectFor(s.att), p.spellings(s.at))
	}
	if err != nil {
		return err
	}
	item.noteGrant(grant)
	item.Rule = grant.Rule
	return nil
}

// checkPortOwner refuses the socket of another attachment's port. Open vSwitch creates the sockets of all tenants in one
// directory, which a rule may grant as a whole, and names each after its port.
func (p *planner) checkPortOwner(s *socket) error {
	own := name.Port(p.req.SandboxID, s.att.IfName)
	file := path.Base(s.at.rel)
	if !name.IsPort(file) || file == own {
		return nil
	}
	return errdefs.ErrPermissionDenied.WithMessage(fmt.Sprintf("%s: invalid value %q: the socket belongs to the port of another network attachment; "+
		"the port of this one is %s", s.field, s.path, own))
}

// spellings returns a path as policy decides on it. Its own path is below the root as configured.
func (p *planner) spellings(at socketPath) policy.SocketPath {
	names := at.names()
	return policy.SocketPath{Path: names[0], Spellings: names[1:], Aliases: p.otherSpellings(at)}
}

// dirDecision says whether the directory of a socket may be delivered. That is so only if it was
// created for the sandbox, or if policy grants everything below it: the container gets
// what else is in it, now or later.
type dirDecision struct {
	state   edit.DirState
	grant   policy.Grant // of everything below it
	refusal error        // why policy does not grant everything below it; nil if it does
}

// decideDir decides on the directory of a socket.
func (p *planner) decideDir(s *socket) (d dirDecision, err error) {
	dir := s.at
	dir.rel = path.Dir(s.at.rel)
	d.grant, d.refusal = p.policy.SocketDir(p.subjectFor(s.att), p.spellings(dir))
	if d.refusal == nil && !d.grant.Audited {
		return d, nil
	}
	d.state, err = p.opts.FindSocketDir(p.req.SandboxID, dir.canonical, dir.rel)
	return d, err
}

// applicationDir returns the directory of a socket that the application creates, or
// why it cannot be delivered.
func (p *planner) applicationDir(s *socket, item *Item) (edit.SocketDir, error) {
	dir := edit.SocketDir{Root: s.at.canonical, Rel: path.Dir(s.at.rel), Access: s.access, From: s.source()}
	if dir.Rel == "." {
		return dir, s.fieldError(fmt.Errorf("socket %q lies in the socket root %q itself, which all pods share; "+
			"each attachment needs a directory of its own below it: %w", s.path, s.at.root, errdefs.ErrFailedPrecondition))
	}
	d, err := p.decideDir(s)
	if err != nil {
		return dir, s.fieldError(err)
	}
	if d.refusal != nil {
		d.refusal = &RequestError{Err: d.refusal, Explanation: fmt.Sprintf("the application makes this socket, and its directory %q existed before the pod: "+
			"all that is in it would be handed over, and a directory of the pod's own would not need that", path.Dir(s.path))}
	}
	if d.state == edit.ForeignDir {
		switch {
		case d.refusal == nil:
			item.noteGrant(d.grant)
		case !p.hasSocket(s.at):
			return dir, s.fieldError(d.refusal)
		}
		d.refusal = nil
	}
	dir.Granted, dir.Refusal = d.refusal == nil, d.refusal
	return dir, nil
}
