// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/staging"
)

// A socket directory is handed over only where it was created for the sandbox, or where
// policy grants everything below it: what else is in it, now or later, comes along.

// dirDecision is whether a socket's directory may be handed over.
type dirDecision struct {
	state   staging.DirState
	granted bool // policy grants everything below it
	// audited is what audit mode lets through, where that is what granted comes from.
	audited policy.Grant
	refusal error // why not, where policy does not grant it
}

// decideDir decides on the directory of a socket.
func (p *planner) decideDir(s socket, at place) (dirDecision, error) {
	d := dirDecision{}
	dir := at
	dir.rel = path.Dir(at.rel)
	granted, denied, err := p.grantPath(s.att, dir, p.policy.SocketDir, p.policy.SocketDirDenied)
	switch {
	case err != nil:
		d.refusal = err
	case denied.Audited:
		d.granted, d.audited = true, denied
	case granted.Audited:
		d.granted, d.audited = true, granted
	default:
		d.granted = true
		return d, nil
	}
	d.state, err = staging.FindSocketDir(p.host, p.cfg.StateDir, p.owner, p.req.SandboxID, dir.canonical, dir.rel)
	return d, err
}

// applicationDir has the directory of a socket that the application makes delivered, or
// says why it is not.
func (p *planner) applicationDir(s socket, at place, access *staging.Access, origin edits.Origin, item *Item) (staging.SocketDir, error) {
	dir := p.socketDir(at, access, origin)
	if dir.Rel == "." {
		return dir, fieldError(origin, fmt.Errorf("socket %q lies in the socket root %q itself, which all pods share; "+
			"each attachment needs a directory of its own below it: %w", s.path, at.root, errdefs.ErrFailedPrecondition))
	}
	d, err := p.decideDir(s, at)
	if err != nil {
		return dir, fieldError(origin, err)
	}
	if d.refusal != nil {
		d.refusal = fmt.Errorf("the application makes this socket, and its directory %q existed before the pod: "+
			"all that is in it would be handed over, and a directory of the pod's own would not need that: %w", path.Dir(s.path), d.refusal)
	}
	if d.state == staging.Foreign {
		kept, _ := p.keeps(s.att) // its place is known: no error
		switch {
		case d.granted:
			noteAudit(item, d.audited)
		case !kept:
			return dir, fieldError(origin, d.refusal)
		}
		d.granted = true
	}
	dir.Granted, dir.Refusal = d.granted, d.refusal
	return dir, nil
}
