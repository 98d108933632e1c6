// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackfield/jackfield/pkg/busytest"
)

func TestATenantFillsNoLog(t *testing.T) {
	at := time.Unix(1000, 0)
	h := hush{}
	told := 0
	for i := range 10_000 { // a second of it
		if quiet, _ := h.next(at.Add(time.Duration(i)*100*time.Microsecond), true, true); !quiet {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d of 10,000 failures were told, want 1", told)
	}
	if quiet, more := h.next(at.Add(hushPeriod+time.Second), true, true); quiet || more != 9_999 {
		t.Errorf("later: quiet %t, %d not told, want 9,999", quiet, more)
	}
	host := hush{}
	for range 3 {
		if quiet, more := host.next(at, false, true); quiet || more != 0 {
			t.Error("what the host's own sockets do is told each time")
		}
	}
	for range 10_000 {
		if quiet, _ := host.next(at, false, true); !quiet {
			told++
		}
	}
	if told > 1+hostLines {
		t.Errorf("%d lines of one of the host's sockets", told)
	}
}

// A socket is watched first, and the directory it lies in is claimed later: what the application does there is logged a bounded number of times.
func TestSocketClaimedLaterFillsNoLog(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/shared/a.sock", "host")
	must(t, n.Prepare(one("first", "pod", "shared/a.sock")))
	n.answers(n.in("first", "net/net1/a.sock"), "host")
	// A second container of the pod, which the node's policy lets have the directory.
	must(t, n.Prepare(Container{ID: "second", SandboxID: "pod", Dirs: []Dir{{Path: "net/net1"}},
		SocketDirs: []SocketDir{{Root: "/run/vsw", Rel: "shared", At: "net/net1", UID: -1, GID: -1, Granted: true}}}))
	began := time.Now()
	dir := n.in("second", "net/net1")
	events := func() int {
		n.events.mu.Lock()
		defer n.events.mu.Unlock()
		return len(n.events.rebound) + len(n.events.failed)
	}
	for i := range 3000 {
		seen := events()
		tmp := fmt.Sprintf("%s/t%d", dir, i)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
		must(t, err)
		l.SetUnlinkOnClose(false)
		l.Close()
		for os.Rename(tmp, dir+"/a.sock") != nil { // what is being bound anew is busy
		}
		// However busy the machine is, there are more events than lines are allowed.
		if i%30 == 0 && !busytest.Until(func() bool { return events() > seen }) {
			t.Fatal("a swapped socket is not bound again")
		}
	}
	n.listen("run/vsw/shared/a.sock", "last")
	n.answers(n.in("first", "net/net1/a.sock"), "last") // all before it has been seen
	periods := int(time.Since(began)/hushPeriod) + 2
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	lines := len(n.events.failed)
	for _, r := range n.events.rebound {
		if !r.Quiet {
			lines++
		}
	}
	if most := 2*periods + hostLines; lines > most {
		t.Errorf("%d lines of %d rebinds and %d failures, want at most %d", lines, len(n.events.rebound), len(n.events.failed), most)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if src := n.sources["/run/vsw/shared/a.sock"]; src == nil || src.lane != ofTenants {
		t.Errorf("the socket is watched in the host's lane: %+v", src)
	}
}
