// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// steady is how long packets must arrive without a pause before a stream counts as recovered.
const steady = time.Second

// arrival is a packet that arrived. The time is the monotonic clock, and count the number of packets up to this one.
type arrival struct {
	number uint64
	time   time.Duration
	count  uint64
}

// pause is a time without packets, and the packets before and after it.
type pause struct{ before, after arrival }

// trafficLog is the output of the receiver in testdata/traffic.c.
type trafficLog struct {
	pauses []pause
	last   arrival
}

func parseTraffic(text string) trafficLog {
	var log trafficLog
	for line := range strings.Lines(text) {
		var p pause
		var at arrival
		before, after := &p.before, &p.after
		n, _ := fmt.Sscanf(line, "gap %d %d %d %d %d",
			&before.number, &before.time, &before.count, &after.number, &after.time)
		if n == 5 {
			after.count = before.count + 1
			log.pauses = append(log.pauses, p)
			log.last = *after
		}
		if n, _ := fmt.Sscanf(line, "at %d %d %d", &at.number, &at.time, &at.count); n == 3 {
			log.last = at
		}
	}
	return log
}

// isSteady reports whether packets have arrived long enough since the last pause.
func (l trafficLog) isSteady() bool {
	return len(l.pauses) > 0 && l.last.time-l.pauses[len(l.pauses)-1].after.time >= steady
}

// outage is the loss of a stream after a reset. The times are those of the last packet before and of the first packet
// after, since the reset.
type outage struct {
	last, first time.Duration
	lost        int
}

// outageAfter returns the outage that began with a reset, and false until the stream is steady again. The outage ends
// with the last pause. Packets that are missing until the stream was steady are lost, too.
func (l trafficLog) outageAfter(reset time.Duration) (outage, bool) {
	if !l.isSteady() {
		return outage{}, false
	}
	for _, p := range l.pauses {
		if p.after.time < reset {
			continue
		}
		end := l.pauses[len(l.pauses)-1].after
		return outage{
			last:  p.before.time - reset,
			first: end.time - reset,
			lost:  int(l.last.number-p.before.number) - int(l.last.count-p.before.count),
		}, true
	}
	return outage{}, false
}

func TestOutageCountsUntilLastPause(t *testing.T) {
	const s = time.Second
	text := fmt.Sprintf(`EAL: noise
gap 0 0 0 7 %d
at 1006 %d 1000
gap 1206 %d 1200 4206 %d
gap 4306 %d 1301 5306 %d
at 5806 %d 1802
`, 1*s, 2*s, 2200*time.Millisecond, 5*s, 5100*time.Millisecond, 6*s, 6500*time.Millisecond)
	log := parseTraffic(text)
	if o, ok := log.outageAfter(2200 * time.Millisecond); ok {
		t.Errorf("half a second after the last pause there is %+v", o)
	}
	log = parseTraffic(text + fmt.Sprintf("at 6406 %d 2400\n", 7100*time.Millisecond))
	want := outage{last: -100 * time.Millisecond, first: 3700 * time.Millisecond, lost: 5200 - 1200}
	if o, ok := log.outageAfter(2300 * time.Millisecond); !ok || o != want {
		t.Errorf("got %+v, %v; want %+v", o, ok, want)
	}
	if o, ok := log.outageAfter(7 * s); ok {
		t.Errorf("without a pause after the reset there is %+v", o)
	}
}
