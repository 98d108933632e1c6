// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/test/e2e/jail"
)

const (
	rebindContainers = 100
	rebindSocket     = "/run/vsw/port/vhost.sock"
)

type rebinds chan staging.Rebound

func (r rebinds) Rebound(x staging.Rebound)          { r <- x }
func (r rebinds) Failed(_ string, _ bool, err error) { fmt.Fprintln(os.Stderr, "staging:", err) }

// BenchmarkRebind re-creates a vswitch's socket b.N times (use -benchtime=1000x) while 100
// containers, each with its own mount namespace, have it mounted. It measures the time from the new
// socket's listen until a connection from inside one container, a different one each time. The peer is a
// bare program: it watches the directory, and mounts the new socket at one place after the other.
func BenchmarkRebind(b *testing.B) {
	b.Run("jackfield", func(b *testing.B) {
		store, events := rebindStore(b)
		l := rebindListen(b)
		for i := range rebindContainers {
			testkit.Must(b, store.Prepare(edit.Container{ID: fmt.Sprint("c", i), SandboxID: fmt.Sprint("s", i), Dirs: []edit.Dir{{Path: "net/net1"}},
				Sockets: []edit.Socket{{Root: "/run/vsw", Rel: "port/vhost.sock", At: []string{"net/net1/vhost.sock"}}}}))
		}
		measureRebinds(b, l, "/run/jackfield", events)
	})
	b.Run("bare", func(b *testing.B) {
		skipOutsideJail(b)
		l := rebindListen(b)
		measureRebinds(b, l, "/run/bare", startBareRebinder(b, "/run/bare"))
	})
}

// measureRebinds re-creates the socket b.N times. done reports that all containers have the new socket.
func measureRebinds(b *testing.B, l *net.UnixListener, stateDir string, done <-chan staging.Rebound) {
	c := startConnector(b, stateDir)
	time.Sleep(200 * time.Millisecond) // until the watch is set up
	var took []time.Duration
	b.ResetTimer()
	for i := range b.N {
		l.Close()
		c.request(b, i*37%rebindContainers)
		l = rebindListen(b)
		listening := monotonic()
		took = append(took, max(0, c.connectedAt(b)-listening))
		<-done
	}
	b.StopTimer()
	l.Close()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(took, 50)/1e6, "p50-ms")
	b.ReportMetric(quantile(took, 99)/1e6, "p99-ms")
}

// startBareRebinder creates the containers' directories below stateDir, and mounts the socket there whenever it is
// created.
func startBareRebinder(b *testing.B, stateDir string) <-chan staging.Rebound {
	containers := filepath.Join(stateDir, "containers")
	testkit.Must(b, os.MkdirAll(containers, 0o755))
	testkit.Must(b, unix.Mount("bare", containers, "tmpfs", 0, ""))
	b.Cleanup(func() {
		testkit.Must(b, unix.Unmount(containers, unix.MNT_DETACH))
		testkit.Must(b, os.RemoveAll(stateDir))
	})
	testkit.Must(b, unix.Mount("", containers, "", unix.MS_SHARED, ""))
	places := make([]string, rebindContainers)
	for i := range places {
		places[i] = filepath.Join(edit.ContainerDir(stateDir, fmt.Sprint("c", i)), "net/net1/vhost.sock")
		testkit.Must(b, os.MkdirAll(filepath.Dir(places[i]), 0o755))
		testkit.Must(b, os.WriteFile(places[i], nil, 0o644))
		testkit.Must(b, unix.Mount(rebindSocket, places[i], "", unix.MS_BIND, ""))
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	testkit.Must(b, err)
	watched := os.NewFile(uintptr(fd), "inotify")
	_, err = unix.InotifyAddWatch(fd, filepath.Dir(rebindSocket), unix.IN_CREATE)
	testkit.Must(b, err)
	done := make(chan staging.Rebound, 1)
	var running sync.WaitGroup
	running.Go(func() {
		events := make([]byte, 4096)
		for {
			if _, err := watched.Read(events); err != nil {
				return
			}
			for _, place := range places {
				_ = unix.Unmount(place, unix.MNT_DETACH)
				_ = unix.Mount(rebindSocket, place, "", unix.MS_BIND, "")
			}
			done <- staging.Rebound{}
		}
	})
	b.Cleanup(func() {
		watched.Close()
		running.Wait()
		testkit.Must(b, os.RemoveAll("/run/vsw"))
	})
	return done
}

// skipOutsideJail skips a benchmark that needs mount namespaces.
func skipOutsideJail(b *testing.B) {
	switch {
	case jail.Inside():
	case os.Getenv("CI") == "true":
		b.Fatalf("cannot run, and must in CI: %v", jail.Possible())
	default:
		b.Skipf("skipped: %v", jail.Possible())
	}
}

func rebindStore(b *testing.B) (*staging.Store, rebinds) {
	skipOutsideJail(b)
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

func rebindListen(b *testing.B) *net.UnixListener {
	testkit.Must(b, os.MkdirAll(filepath.Dir(rebindSocket), 0o755))
	os.Remove(rebindSocket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: rebindSocket, Net: "unix"})
	testkit.Must(b, err)
	l.SetUnlinkOnClose(false)
	return l
}
