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

// grantSocket checks policy for the socket under each spelling of its path, and for a named socket
// also by its name.
func grantSocket(in *inputs, d *delta, s *socket) error {
	var grant policy.Grant
	var err error
	if s.name != "" {
		grant, err = in.policy.NamedSocket(s.subject, s.name, in.roots.spellings(s.at))
	} else if err = checkPortOwner(in, s); err == nil {
		grant, err = in.policy.SocketAt(s.subject, in.roots.spellings(s.at))
	}
	if err != nil {
		return err
	}
	d.item.noteGrant(grant)
	d.item.Rule = grant.Rule
	return nil
}

// checkPortOwner refuses the socket of another attachment's port. Open vSwitch creates the sockets of all tenants in
// one directory, which a rule can grant as a whole, and names each after its port.
func checkPortOwner(in *inputs, s *socket) error {
	file := path.Base(s.at.rel)
	if !name.IsPort(file) {
		return nil
	}
	own := name.Port(in.req.SandboxID, s.attachment.IfName)
	if file == own {
		return nil
	}
	return errdefs.ErrPermissionDenied.WithMessage(fmt.Sprintf("%s: invalid value %q: the socket belongs to the port of "+
		"another network attachment; the port of this one is %s", s.origin.Field, s.path, own))
}

// dirDecision is the decision whether the directory of a socket can be delivered. It can only if it was
// created for the sandbox, or if policy grants everything below it: the container gets
// all other files in it, now or later.
type dirDecision struct {
	state   edit.DirState
	grant   policy.Grant // of everything below it
	refusal error        // why policy does not grant everything below it; nil if it does
}

// decideDir decides on the directory of a socket.
func decideDir(in *inputs, s *socket) (decision dirDecision, err error) {
	dir := s.at
	dir.rel = path.Dir(s.at.rel)
	decision.grant, decision.refusal = in.policy.SocketDir(s.subject, in.roots.spellings(dir))
	if decision.refusal == nil && !decision.grant.Audited {
		return decision, nil
	}
	decision.state, err = in.opts.FindSocketDir(in.req.SandboxID, dir.canonical, dir.rel)
	return decision, err
}

// applicationDir returns the directory of a socket that the application creates, or
// why it cannot be delivered.
func applicationDir(in *inputs, d *delta, s *socket) (edit.SocketDir, error) {
	dir := edit.SocketDir{Root: s.at.canonical, Rel: path.Dir(s.at.rel), Access: s.access, From: s.source()}
	if dir.Rel == "." {
		return dir, s.fieldError(fmt.Errorf("socket %q lies in the socket root %q itself, which all pods share; "+
			"each attachment needs a directory of its own below it: %w", s.path, s.at.root, errdefs.ErrFailedPrecondition))
	}
	decision, err := decideDir(in, s)
	if err != nil {
		return dir, s.fieldError(err)
	}
	if decision.refusal != nil {
		dir.Refusal = &RequestError{Err: decision.refusal, Explanation: fmt.Sprintf("the application makes this socket, "+
			"and its directory %q existed before the pod: all that is in it would be handed over, "+
			"and a directory of the pod's own would not need that", path.Dir(s.path))}
	}
	if decision.state == edit.ForeignDir {
		switch {
		case decision.refusal == nil:
			d.item.noteGrant(decision.grant)
		case !in.hasSocket(s.at):
			return dir, s.fieldError(dir.Refusal)
		}
		dir.Refusal = nil
	}
	dir.Granted = dir.Refusal == nil
	return dir, nil
}
