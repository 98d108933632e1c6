// SPDX-License-Identifier: Apache-2.0

package nri

import "github.com/jackfield/jackfield/pkg/telemetry"

// later runs what nobody waits for: a log line costs a third of what a container
// does.
type later struct {
	*queue[func()]
	lost *telemetry.Counter
}

func newLater(lost *telemetry.Counter) *later {
	return &later{newQueue(4096, func(f func()) { f() }), lost}
}

// do has f run soon. When more is waiting than is kept, because what f does hangs,
// it is lost and counted.
func (l *later) do(f func()) {
	if !l.put(f) {
		l.lost.Add()
	}
}
