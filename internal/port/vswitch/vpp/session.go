// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"context"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// session is one connection that several calls of a Driver share.
type session struct {
	mu   sync.Mutex
	conn *connection
	err  error // error of the connection; it ends the session
}

// OpenSession implements vswitch.SessionOpener. It exists because VPP's listen queue holds five
// connections, and VPP serves one request at a time.
func (d *Driver) OpenSession(ctx context.Context) (vswitch.Driver, func(), error) {
	c, err := connect(ctx, d.Socket())
	if err != nil {
		return nil, nil, d.explain(vswitch.Port{}, err)
	}
	shared := *d
	shared.session = &session{conn: c}
	return &shared, c.close, nil
}

// run runs f with the connection. After one call without a reply, every later call fails
// immediately instead of waiting for its own timeout.
func (s *session) run(f func(*connection) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	err := f(s.conn)
	if errdefs.IsUnavailable(err) {
		s.err = err
	}
	return err
}
