// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// passSession is the driver of one pass. A driver that supports sessions uses one connection for
// all ports, opened with the first port, because a switch's listen queue is short and a full queue
// delays other clients.
type passSession struct {
	driver vswitch.Driver

	once    sync.Once
	session vswitch.Driver
	end     func()
	err     error
}

// open returns the driver. ctx must not end before the pass.
func (p *passSession) open(ctx context.Context) (vswitch.Driver, error) {
	p.once.Do(func() {
		opener, ok := p.driver.(vswitch.SessionOpener)
		if !ok {
			p.session = p.driver
			return
		}
		p.session, p.end, p.err = opener.OpenSession(ctx)
	})
	return p.session, p.err
}

func (p *passSession) close() {
	if p.end != nil {
		p.end()
	}
}
