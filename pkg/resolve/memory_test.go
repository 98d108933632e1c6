// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

// Plans whose memory was given back have no part in the plans that come after, and
// those that were kept are not changed by them.
func TestReleasedMemoryIsNobodysElse(t *testing.T) {
	h := newHost(t, "enforce")
	for i := range 8 {
		h.write(fmt.Sprintf("/run/cdi/m%d.json", i), fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","containerEdits":{"env":["S%[1]d=1"]},"devices":[
 {"name":"m%[1]d","containerEdits":{"env":["A=%[1]d"],"mounts":[{"hostPath":"/h%[1]d","containerPath":"/c%[1]d","options":["ro","o%[1]d"]}],
  "hooks":[{"hookName":"prestart","path":"/p%[1]d","args":["x","%[1]d"],"env":["H=%[1]d"]}]}}]}`, i))
	}
	asks := make([]*Request, 8)
	want := make([]string, len(asks))
	text := func(p *Plan) string {
		b, err := json.Marshal(struct {
			Set   any
			Items []Item
		}{p.Set, p.Items})
		must(t, err)
		return string(b)
	}
	for i := range asks {
		asks[i] = ask("")
		asks[i].Namespace = "ns"
		for j := range i + 1 {
			asks[i].CDIDevices = append(asks[i].CDIDevices, fmt.Sprintf("vendor.com/net=m%d", (i+j)%8))
		}
		asks[i].CDIDevices = append(asks[i].CDIDevices, "vendor.com/net=a")
		p, err := h.e.Explain(context.Background(), asks[i])
		must(t, err)
		want[i] = text(p)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			kept := map[int]*Plan{}
			for n := range 200 {
				i := (n*7 + g) % len(asks)
				p, err := h.e.Resolve(context.Background(), asks[i])
				if err != nil || text(p) != want[i] {
					t.Errorf("got %v, %v\nwant %s", p, err, want[i])
					return
				}
				if n%5 == 0 {
					kept[i] = p
					continue
				}
				p.Release()
			}
			for i, p := range kept {
				if text(p) != want[i] {
					t.Errorf("a plan that was kept is\n%s\nwant\n%s", text(p), want[i])
				}
			}
		})
	}
	wg.Wait()
}
