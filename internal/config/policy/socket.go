// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
)

// SocketPath is the host path of a socket, or of a directory of sockets, under each of its spellings. A rule that
// denies one of them denies the socket. A rule in force that grants one grants the socket also in mode enforce.
type SocketPath struct {
	// Path is the spelling that errors name.
	Path string
	// Spellings are further ones by which rules grant and deny it.
	Spellings []string
	// Aliases are further ones by which rules only deny it.
	Aliases []string
}

// SocketAt decides as Socket does, on a path of several spellings.
func (p *Policy) SocketAt(s Subject, at SocketPath) (Grant, error) {
	return p.decideSpellings(&s, at.spellings(false), socketItems(at.Aliases, false))
}

// SocketDir decides on a directory of sockets together with everything below it, now and later. One
// pattern of a rule has to cover all of that, as "DIR/**" does, and no deny pattern may match the
// directory or anything below it. The path follows the rules of Socket.
func (p *Policy) SocketDir(s Subject, dir SocketPath) (Grant, error) {
	return p.decideSpellings(&s, dir.spellings(true), socketItems(dir.Aliases, true))
}

// NamedSocket decides on a socket that the node's configuration names. A rule grants it by its name or as a socket by
// its path. A rule that denies one of these denies the socket. The error is a *RefusedError, which names it by its name
// unless its path is denied.
func (p *Policy) NamedSocket(s Subject, name string, at SocketPath) (Grant, error) {
	s.Network, s.NetworkGuessed = "", false
	named := item{kind: kindNamedSocket, name: name}
	grant, err := p.decideSpellings(&s, append([]item{named}, at.spellings(false)...), socketItems(at.Aliases, false))
	if err == nil {
		grant.Asked = named.asked(&s)
	}
	return grant, err
}

// spellings returns the items by which rules grant the path. A whole item is a directory with everything below it.
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

// decideSpellings decides on one thing that rules grant and deny by several spellings, and only deny by aliases. The
// error is the first denial, or else the refusal of the first spelling.
func (p *Policy) decideSpellings(s *Subject, spellings, aliases []item) (Grant, error) {
	if p == nil {
		p = &Policy{}
	}
	var best Grant
	var refusal error
	var overridden *RefusedError // the denial that audit mode overrides
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

// isDenied reports whether an error is that a rule denies something.
func isDenied(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Denied
}
