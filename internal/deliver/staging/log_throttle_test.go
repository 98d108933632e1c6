// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
)

func TestTenantCannotFillLog(t *testing.T) {
	at := time.Unix(1000, 0)
	h := logThrottle{}
	logged := 0
	for i := range 10_000 { // for one second
		if quiet, _ := h.countLine(at.Add(time.Duration(i)*100*time.Microsecond), true, true); !quiet {
			logged++
		}
	}
	if logged != 1 {
		t.Errorf("%d of 10,000 failures were logged, want 1", logged)
	}
	if quiet, more := h.countLine(at.Add(throttlePeriod+time.Second), true, true); quiet || more != 9_999 {
		t.Errorf("later: quiet %t, %d lines suppressed, want 9,999", quiet, more)
	}
	host := logThrottle{}
	for range 3 {
		if quiet, more := host.countLine(at, false, true); quiet || more != 0 {
			t.Error("the first failures of a host socket are not logged")
		}
	}
	for range 10_000 {
		if quiet, _ := host.countLine(at, false, true); !quiet {
			logged++
		}
	}
	if logged > 1+maxHostLines {
		t.Errorf("%d lines about a host socket", logged)
	}
}

// A directory is claimed after a socket in it is watched. The application there causes a limited
// number of log lines.
func TestSocketClaimedLaterCannotFillLog(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/shared/a.sock", "host")
	testkit.Must(t, n.Prepare(newContainer("first", "pod", "shared/a.sock")))
	n.wantAnswer(n.stagedPath("first", "net/net1/a.sock"), "host")
	// A second container of the pod, to which policy grants the directory.
	testkit.Must(t, n.Prepare(edit.Container{ID: "second", SandboxID: "pod", Dirs: []edit.Dir{{Path: "net/net1"}},
		SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "shared", At: "net/net1", Granted: true}}}))
	began := time.Now()
	dir := n.stagedPath("second", "net/net1")
	events := func() int {
		n.events.mu.Lock()
		defer n.events.mu.Unlock()
		return len(n.events.rebound) + len(n.events.failed)
	}
	for i := range 3000 {
		seen := events()
		tmp := fmt.Sprintf("%s/t%d", dir, i)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
		testkit.Must(t, err)
		l.SetUnlinkOnClose(false)
		l.Close()
		for os.Rename(tmp, dir+"/a.sock") != nil { // a socket that is being rebound is busy
		}
		// However busy the machine is, there are more events than lines are allowed.
		if i%30 == 0 && !testkit.Until(func() bool { return events() > seen }) {
			t.Fatal("a swapped socket is not rebound")
		}
	}
	n.listen("run/vsw/shared/a.sock", "last")
	n.wantAnswer(n.stagedPath("first", "net/net1/a.sock"), "last") // the rebinder has handled all events before it
	periods := int(time.Since(began)/throttlePeriod) + 2
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	lines := len(n.events.failed)
	for _, r := range n.events.rebound {
		if !r.Throttled {
			lines++
		}
	}
	if most := 2*periods + maxHostLines; lines > most {
		t.Errorf("%d lines of %d rebinds and %d failures, want at most %d", lines, len(n.events.rebound), len(n.events.failed), most)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if src := n.sockets["/run/vsw/shared/a.sock"]; src == nil || !src.tenant {
		t.Errorf("the socket is watched as a host socket: %+v", src)
	}
}
