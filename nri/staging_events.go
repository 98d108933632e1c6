// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/throttle"
	"github.com/jackfield/jackfield/internal/deliver/staging"
)

// stagingEvents counts and logs the background work of a store. A tenant that can write a socket's directory must not
// fill the node's log, so each socket causes one line in five seconds, and 16 if only the host can cause them.
type stagingEvents struct {
	*daemon
	host, tenant throttle.Throttle[string] // by socket; "" for failures without a socket
}

func newStagingEvents(d *daemon) *stagingEvents {
	const interval = 5 * time.Second
	return &stagingEvents{daemon: d, host: throttle.Throttle[string]{Interval: interval, Burst: 16},
		tenant: throttle.Throttle[string]{Interval: interval}}
}

// logThrottled writes a line unless one of the same socket was written a moment ago. Sockets that a tenant can
// re-create have a throttle of their own, so that a tenant cannot suppress lines about the host's sockets.
func (e *stagingEvents) logThrottled(socket string, tenant bool, write func(log *logrus.Entry)) {
	lines := &e.host
	if tenant {
		lines = &e.tenant
	}
	lines.Report(socket, func(repeats int) { write(withRepeats(e.log, repeats)) })
}

// Rebound implements staging.Events.
func (e *stagingEvents) Rebound(r staging.Rebound) {
	message := "the host created the socket; bound it in the containers"
	if r.Again > 0 {
		message = "the host re-created the socket; rebound it in the containers"
		e.counters.Rebinds.Add(1)
	}
	e.logThrottled(r.Socket, r.Tenant, func(log *logrus.Entry) {
		log.WithFields(logrus.Fields{"socket": r.Socket, "containers": r.Containers, "took": r.Took.String()}).Info(message)
	})
}

// Failed implements staging.Events.
func (e *stagingEvents) Failed(socket string, tenant bool, err error) {
	e.counters.StagingFailed.Add(1)
	e.logThrottled(socket, tenant, func(log *logrus.Entry) {
		log.WithError(err).Warn("cannot update the sockets of running containers")
	})
}
