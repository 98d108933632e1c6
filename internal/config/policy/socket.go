// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
)

// SocketPath is the host path of a socket, or of a directory of sockets, in all its spellings. A
// rule that denies one spelling denies the socket. A rule that grants one spelling grants it, even
// if other spellings are granted only in audit mode.
type SocketPath struct {
	// Path is the spelling in errors.
	Path string
	// Spellings are further paths by which rules grant and deny the socket.
	Spellings []string
	// Aliases are further paths by which rules only deny the socket.
	Aliases []string
}

// SocketAt decides like Socket, on all spellings of a path.
func (p *Policy) SocketAt(s Subject, at SocketPath) (Grant, error) {
	return p.decideSpellings(&s, at.spellings(false), socketItems(at.Aliases, false))
}

// SocketDir decides on a directory of sockets with everything below it, now and later. One pattern
// must cover all of it, such as "DIR/**", and no deny pattern can match the directory or anything
// below it. The path has the same requirements as in Socket.
func (p *Policy) SocketDir(s Subject, dir SocketPath) (Grant, error) {
	return p.decideSpellings(&s, dir.spellings(true), socketItems(dir.Aliases, true))
}

// NamedSocket decides on a named socket of the node's configuration. A rule grants it by its name,
// or by its path as a socket. A rule that denies either denies the socket. The error is a
// *RefusedError about the name, or about the path if that is denied.
func (p *Policy) NamedSocket(s Subject, name string, at SocketPath) (Grant, error) {
	s.Network, s.NetworkGuessed = "", false
	named := item{kind: kindNamedSocket, name: name}
	grant, err := p.decideSpellings(&s, append([]item{named}, at.spellings(false)...), socketItems(at.Aliases, false))
	if err == nil {
		grant.Asked = named.asked(&s)
	}
	return grant, err
}

// spellings returns the items by which rules grant the path. A whole item is a directory with
// everything below it.
func (at *SocketPath) spellings(whole bool) []item {
	return socketItems(append([]string{at.Path}, at.Spellings...), whole)
}

func socketItems(paths []string, whole bool) []item {
	items := make([]item, len(paths))
	for i, path := range paths {
		items[i] = item{kind: kindSocket, name: path, whole: whole}
	}
	return items
}

// decideSpellings decides on one object that rules grant and deny by several spellings, and only
// deny by aliases. The error is the first denial, or otherwise the refusal of the first spelling.
func (p *Policy) decideSpellings(s *Subject, spellings, aliases []item) (Grant, error) {
	if p == nil {
		p = &Policy{}
	}
	var best Grant
	var refusal error
	var overridden *RefusedError // denial that audit mode overrides
	for i := range spellings {
		grant, err := p.decide(s, &spellings[i])
		if isDenied(err) {
			return Grant{}, err
		}
		if grant.Audited && grant.Refusal.Denied {
			overridden = grant.Refusal
		}
		if grant.strength() > best.strength() {
			best = grant
		}
		refusal = cmp.Or(refusal, err)
	}
	for i := range aliases {
		denied, enforced := p.denied(s, &aliases[i])
		if enforced {
			return Grant{}, denied
		}
		overridden = cmp.Or(denied, overridden)
	}
	if best.strength() == 0 {
		return Grant{}, refusal
	}
	if overridden != nil {
		best.Audited, best.Refusal = true, overridden
	}
	return best, nil
}

// isDenied reports whether err is a denial by a rule.
func isDenied(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Denied
}
