// SPDX-License-Identifier: Apache-2.0

package policy

import "errors"

// NamedSocket is a socket of the host that the node's configuration names.
type NamedSocket struct {
	Name string
	// Paths are the spellings of its host path by which rules grant and deny it.
	Paths []string
	// Aliases are further spellings, by which rules only deny it.
	Aliases []string
}

// NamedSocket decides on a named socket. A rule grants it by its name or as a socket by its path. A rule that denies
// one of these denies the socket. The error is a *RefusedError.
func (p *Policy) NamedSocket(s Subject, socket NamedSocket) (Grant, error) {
	best, refusal := p.decide(&s, &item{kind: kindNamedSocket, name: socket.Name})
	if isDenied(refusal) {
		return Grant{}, refusal
	}
	asked := (&item{kind: kindNamedSocket, name: socket.Name}).asked(&s)
	var overridden *RefusedError // the denial that audit mode overrides
	if best.Audited && best.Refusal.Denied {
		overridden = best.Refusal
	}
	s.Network, s.NetworkGuessed = "", false
	for _, path := range socket.Paths {
		grant, err := p.Socket(s, path)
		if isDenied(err) {
			return Grant{}, err
		}
		if grant.Audited && grant.Refusal.Denied {
			overridden = grant.Refusal
		}
		if grant.Strength() > best.Strength() {
			best = grant
		}
	}
	for _, path := range socket.Aliases {
		denied, enforced := p.SocketDenied(s, path)
		if enforced {
			return Grant{}, denied
		}
		if denied != nil {
			overridden = denied
		}
	}
	if best.Strength() == 0 {
		return Grant{}, refusal
	}
	if overridden != nil {
		best.Audited, best.Refusal = true, overridden
	}
	best.Asked = asked
	return best, nil
}

// isDenied reports whether an error is that a rule denies something.
func isDenied(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Denied
}
