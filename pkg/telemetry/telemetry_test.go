// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCountingAllocatesNothing(t *testing.T) {
	var c Counters
	c.RefusedBy.Add("rule")
	if n := testing.AllocsPerRun(100, func() {
		c.Containers.Add()
		c.Handlers[CreateContainer].Observe(time.Millisecond)
		c.Count(SourceNetwork, LeftAlone)
		c.RefusedBy.Add("rule")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if c.LeftAlone.Load() != c.Requests[SourceNetwork][LeftAlone].Load() {
		t.Error("the two counts of one thing differ")
	}
}

func TestHistogramBuckets(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{0, 10 * time.Microsecond, 10*time.Microsecond + 1, time.Second, 3 * time.Second} {
		h.Observe(d)
	}
	if h.Count() != 5 || h.counts[0].Load() != 2 || h.counts[1].Load() != 1 || h.counts[buckets].Load() != 1 {
		t.Errorf("counts %v", &h.counts)
	}
	was := int64(0)
	for _, b := range bounds() {
		if b <= was {
			t.Errorf("bound %d comes after %d", b, was)
		}
		was = b
	}
}

func TestNamesAreBounded(t *testing.T) {
	var b ByName
	for i := range 3 * maxNames {
		b.Add(fmt.Sprint(i))
	}
	sum, n := uint64(0), 0
	b.each(func(_ string, v uint64) { sum += v; n++ })
	if sum != 3*maxNames || n != maxNames+1 || b.n[others] != 2*maxNames {
		t.Errorf("%d names, %d in all, %d others", n, sum, b.n[others])
	}
}

func TestWhatIsNotKnownIsLeftOut(t *testing.T) {
	var c Counters
	text := string(Expose(nil, &c, &Sample{}))
	if strings.Contains(text, "\njackfield_cdi_files ") || strings.Contains(text, "\njackfield_nri_runtime_info{") {
		t.Error(text)
	}
	if !strings.Contains(text, "\njackfield_cdi_up 0\n") {
		t.Error(text)
	}
}
