// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/test/e2e/jail"
)

const rebindContainers = 100

type rebinds chan staging.Rebound

func (r rebinds) Rebound(x staging.Rebound)          { r <- x }
func (r rebinds) Failed(_ string, _ bool, err error) { fmt.Fprintln(os.Stderr, "staging:", err) }

// BenchmarkRebind re-creates a vswitch's socket b.N times (use -benchtime=1000x) while 100
// containers, each with its own mount namespace, have it mounted. It measures the time from the new
// socket's listen until a connection from inside one container, a different one each time.
func BenchmarkRebind(b *testing.B) {
	store, events := rebindStore(b)
	socket := "/run/vsw/port/vhost.sock"
	l := rebindListen(b, socket)
	for i := range rebindContainers {
		testkit.Must(b, store.Prepare(edit.Container{ID: fmt.Sprint("c", i), SandboxID: fmt.Sprint("s", i), Dirs: []edit.Dir{{Path: "net/net1"}},
			Sockets: []edit.Socket{{Root: "/run/vsw", Rel: "port/vhost.sock", At: []string{"net/net1/vhost.sock"}}}}))
	}
	c := startConnector(b)
	time.Sleep(200 * time.Millisecond) // until the watch is set up
	var took []time.Duration
	b.ResetTimer()
	for i := range b.N {
		l.Close()
		c.request(b, i*37%rebindContainers)
		l = rebindListen(b, socket)
		listening := monotonic()
		took = append(took, max(0, c.connectedAt(b)-listening))
		<-events
	}
	b.StopTimer()
	l.Close()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(took, 50)/1e6, "p50-ms")
	b.ReportMetric(quantile(took, 99)/1e6, "p99-ms")
}

func rebindStore(b *testing.B) (*staging.Store, rebinds) {
	if !jail.Inside() {
		if os.Getenv("CI") == "true" {
			b.Fatalf("cannot run, and must in CI: %v", jail.Possible())
		}
		b.Skipf("skipped: %v", jail.Possible())
	}
	testkit.Must(b, os.MkdirAll("/run/vsw", 0o755))
	events := make(rebinds, 4096)
	store, err := staging.Open(hostfs.Host(), "/run/jackfield", staging.Options{Mode: staging.ModeMount, Watch: true, Events: events})
	testkit.Must(b, err)
	b.Cleanup(func() {
		none := func(string) bool { return false }
		testkit.Must(b, store.Retain(time.Time{}, none, none))
		testkit.Must(b, store.Close())
		testkit.Must(b, store.UnmountIfEmpty())
		testkit.Must(b, os.RemoveAll("/run/vsw"))
	})
	return store, events
}

func rebindListen(b *testing.B, path string) *net.UnixListener {
	testkit.Must(b, os.MkdirAll(filepath.Dir(path), 0o755))
	os.Remove(path)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	testkit.Must(b, err)
	l.SetUnlinkOnClose(false)
	return l
}
