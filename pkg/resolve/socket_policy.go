// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/staging"
)

// grantSocket asks policy for the socket under each spelling of its path, and for a named socket
// also by its name.
func (p *planner) grantSocket(s *socket, item *Item) (err error) {
	var granted, denied policy.Grant
	if s.named != "" {
		granted, err = p.policy.NamedSocket(p.subject, policy.NamedSocket{Name: s.named, Paths: s.at.names(), Aliases: p.otherSpellings(s.at)})
	} else {
		granted, denied, err = p.grantPath(p.subjectFor(s.att), s.at, p.policy.Socket, p.policy.SocketDenied)
	}
	if err != nil {
		return err
	}
	item.noteGrant(denied)
	item.noteGrant(granted)
	item.Rule = granted.Rule
	return nil
}

// grantPath asks policy for a path under each of its spellings. An error names the spelling
// that device-info has. A rule that denies one spelling denies the path. A rule in force that grants
// one spelling grants the path also in mode enforce.
// It returns the best of the grants, and the denial that audit mode overrides, if there is one.
func (p *planner) grantPath(subject policy.Subject, at socketPath, ask func(policy.Subject, string) (policy.Grant, error),
	isDenied func(policy.Subject, string) (*policy.RefusedError, bool)) (granted, denied policy.Grant, err error) {
	var first error
	best := 0
	for _, name := range at.names() {
		grant, err := ask(subject, name)
		var refused *policy.RefusedError
		switch {
		case errors.As(err, &refused) && refused.Denied:
			return granted, denied, err
		case err != nil:
			first = cmp.Or(first, err)
			continue
		}
		if grant.Audited && grant.Refusal.Denied {
			denied = grant
		}
		if w := grant.Strength(); w > best {
			granted, best = grant, w
		}
	}
	for _, name := range p.otherSpellings(at) {
		refused, enforced := isDenied(subject, name)
		switch {
		case enforced:
			return granted, denied, refused
		case refused != nil:
			denied = policy.Grant{Audited: true, Refusal: refused}
		}
	}
	if best == 0 {
		return granted, denied, first
	}
	return granted, denied, nil
}

// dirDecision says whether the directory of a socket may be delivered. That is so only if it was
// created for the sandbox, or if policy grants everything below it: the container gets
// what else is in it, now or later.
type dirDecision struct {
	state   staging.DirState
	audited policy.Grant // the grant, if it is one of audit mode
	asked   policy.Asked // what the grant is about
	refusal error        // why policy does not grant everything below it; nil if it does
}

// decideDir decides on the directory of a socket.
func (p *planner) decideDir(s *socket) (d dirDecision, err error) {
	dir := s.at
	dir.rel = path.Dir(s.at.rel)
	granted, denied, err := p.grantPath(p.subjectFor(s.att), dir, p.policy.SocketDir, p.policy.SocketDirDenied)
	d.asked = granted.Asked
	switch {
	case err != nil:
		d.refusal = err
	case denied.Audited:
		d.audited = denied
	case granted.Audited:
		d.audited = granted
	default:
		return d, nil
	}
	d.state, err = staging.FindSocketDir(p.host, p.cfg.StateDir, p.opts.Owner, p.req.SandboxID, dir.canonical, dir.rel)
	return d, err
}

// applicationDir returns the directory of a socket that the application creates, or
// why it cannot be delivered.
func (p *planner) applicationDir(s *socket, item *Item) (staging.SocketDir, error) {
	dir := staging.SocketDir{Root: s.at.canonical, Rel: path.Dir(s.at.rel), Access: s.access, From: s.source()}
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
	if d.state == staging.Foreign {
		switch {
		case d.refusal == nil:
			item.noteGrant(d.audited)
			item.addAsked(d.asked)
		case !p.hasSocket(s.at):
			return dir, s.fieldError(d.refusal)
		}
		d.refusal = nil
	}
	dir.Granted, dir.Refusal = d.refusal == nil, d.refusal
	return dir, nil
}
