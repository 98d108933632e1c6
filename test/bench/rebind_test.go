// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/staging"
	"github.com/jackfield/jackfield/test/e2e/jail"
)

const rebindContainers = 100

type rebinds chan staging.Rebound

func (r rebinds) Rebound(x staging.Rebound) { r <- x }
func (r rebinds) Failed(err error)          { fmt.Fprintln(os.Stderr, "staging:", err) }

// BenchmarkRebind is a vswitch that makes its socket anew, b.N times (use
// -benchtime=1000x), while 100 containers, each with a mount namespace of its own,
// hold it: the time from the socket's listening to a connection from inside one
// container, a different one each time (p50, p99), and until each of the 100 has
// connected, the last of them too (all-p50, all-p99).
func BenchmarkRebind(b *testing.B) {
	store, events := rebindStore(b)
	socket := "/run/vsw/port/vhost.sock"
	l := rebindListen(b, socket)
	for i := range rebindContainers {
		must(b, store.Prepare(staging.Container{ID: fmt.Sprint("c", i), SandboxID: fmt.Sprint("s", i), Dirs: []staging.Dir{{Path: "net/net1"}},
			Sockets: []staging.Socket{{Root: "/run/vsw", Rel: "port/vhost.sock", At: []string{"net/net1/vhost.sock"}}}}))
	}
	c := startConnector(b)
	time.Sleep(200 * time.Millisecond) // the watch is there
	var one, all []time.Duration
	b.ResetTimer()
	for i := range b.N {
		l.Close()
		c.ask(b, i*37%rebindContainers)
		l = rebindListen(b, socket)
		began := monotonic()
		first, last := c.answer(b)
		one = append(one, max(0, first-began))
		all = append(all, max(0, last-began))
		<-events
	}
	b.StopTimer()
	l.Close()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(one, 50)/1e6, "p50-ms")
	b.ReportMetric(quantile(one, 99)/1e6, "p99-ms")
	b.ReportMetric(quantile(all, 50)/1e6, "all-p50-ms")
	b.ReportMetric(quantile(all, 99)/1e6, "all-p99-ms")
}

// BenchmarkIdle is what watching 1,000 sockets costs while nothing happens to them:
// the process's CPU time in one second, as a share of a core.
func BenchmarkIdle(b *testing.B) {
	store, _ := rebindStore(b)
	for i := range 1000 {
		rel := fmt.Sprintf("port%d/vhost.sock", i)
		l := rebindListen(b, "/run/vsw/"+rel)
		b.Cleanup(func() { l.Close() })
		must(b, store.Prepare(staging.Container{ID: fmt.Sprint("c", i), SandboxID: "s", Dirs: []staging.Dir{{Path: "net/net1"}},
			Sockets: []staging.Socket{{Root: "/run/vsw", Rel: rel, At: []string{"net/net1/vhost.sock"}}}}))
	}
	time.Sleep(time.Second)
	cpu := func() time.Duration {
		var u unix.Rusage
		must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ResetTimer()
	before := cpu()
	for range b.N {
		time.Sleep(time.Second)
	}
	b.ReportMetric(100*float64(cpu()-before)/float64(time.Duration(b.N)*time.Second), "%core")
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func rebindStore(b *testing.B) (*staging.Store, rebinds) {
	if !jail.Inside() {
		if os.Getenv("CI") == "true" {
			b.Fatalf("cannot run, and CI promises that it can: %v", jail.Possible())
		}
		b.Skipf("skipped: %v", jail.Possible())
	}
	must(b, os.MkdirAll("/run/vsw", 0o755))
	events := make(rebinds, 4096)
	store, err := staging.Open(hostfs.Host(), "/run/jackfield", staging.Options{Mode: staging.Mounts, Watch: true, Events: events})
	must(b, err)
	b.Cleanup(func() {
		none := func(string) bool { return false }
		must(b, store.Retain(none, none))
		must(b, store.Close())
		must(b, store.Tidy())
		must(b, os.RemoveAll("/run/vsw"))
	})
	return store, events
}

func rebindListen(b *testing.B, path string) *net.UnixListener {
	must(b, os.MkdirAll(filepath.Dir(path), 0o755))
	os.Remove(path)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(b, err)
	l.SetUnlinkOnClose(false)
	return l
}
