// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
)

// A directory is claimed after a socket in it is watched. From then on, each event of the socket says that a tenant can
// cause it, so that the plugin limits its log lines.
func TestEventsOfSocketClaimedLaterAreTenants(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/shared/a.sock", "host")
	testkit.Must(t, n.Prepare(newContainer("first", "pod", "shared/a.sock")))
	n.wantAnswer(n.stagedPath("first", "net/net1/a.sock"), "host")
	// A second container of the pod, to which policy grants the directory.
	testkit.Must(t, n.Prepare(edit.Container{ID: "second", SandboxID: "pod", Dirs: []edit.Dir{{Path: "net/net1"}},
		SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "shared", At: "net/net1", Granted: true}}}))
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
		// However busy the machine is, there are more events than the host can have caused.
		if i%30 == 0 && !testkit.Until(func() bool { return events() > seen }) {
			t.Fatal("a swapped socket is not rebound")
		}
	}
	n.listen("run/vsw/shared/a.sock", "last")
	n.wantAnswer(n.stagedPath("first", "net/net1/a.sock"), "last") // the rebinder has handled all events before it
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	host := n.events.hostFailures
	for _, r := range n.events.rebound {
		if !r.Tenant {
			host++
		}
	}
	if host > 2 { // the first binding in each container
		t.Errorf("%d of %d rebinds and %d failures count as events that no tenant can cause, want 2 at most", host,
			len(n.events.rebound), len(n.events.failed))
	}
	n.lock.mu.Lock()
	defer n.lock.mu.Unlock()
	if src := n.tracker.sockets["/run/vsw/shared/a.sock"]; src == nil || !src.tenant {
		t.Errorf("the socket is watched as a host socket: %+v", src)
	}
}
