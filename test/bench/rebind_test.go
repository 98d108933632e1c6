// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
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
// hold it: from the socket's listening to a connection from inside one container, a
// different one each time (p50, p99), and the plugin's own time for all 100.
func BenchmarkRebind(b *testing.B) {
	store, events := rebindStore(b)
	socket := "/run/vsw/port/vhost.sock"
	l := rebindListen(b, socket)
	ask := make([]chan chan time.Time, rebindContainers)
	for i := range ask {
		id := fmt.Sprint("c", i)
		must(b, store.Prepare(staging.Container{ID: id, SandboxID: fmt.Sprint("s", i), Dirs: []staging.Dir{{Path: "net/net1"}},
			Sockets: []staging.Socket{{Root: "/run/vsw", Rel: "port/vhost.sock", At: []string{"net/net1/vhost.sock"}}}}))
		ask[i] = inside(b, staging.ContainerDir("/run/jackfield", id))
	}
	time.Sleep(200 * time.Millisecond) // the watch is there
	var reach, all []time.Duration
	b.ResetTimer()
	for i := range b.N {
		l.Close()
		l = rebindListen(b, socket)
		began := time.Now()
		answer := make(chan time.Time)
		ask[i*37%rebindContainers] <- answer
		reach = append(reach, max(0, (<-answer).Sub(began)))
		all = append(all, (<-events).Took)
	}
	b.StopTimer()
	l.Close()
	slices.Sort(reach)
	slices.Sort(all)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(reach[len(reach)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(reach[len(reach)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "all100-p99-µs")
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

// inside is a thread in a mount namespace of its own, which has a staging directory
// as a container has it, and connects to its socket when asked, until that works.
func inside(b *testing.B, dir string) chan chan time.Time {
	asked := make(chan chan time.Time)
	ready := make(chan error)
	b.Cleanup(func() { close(asked) })
	var thread func()
	thread = func() {
		runtime.LockOSThread() // ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends, and /proc/self is its view.
			go thread()
			runtime.Gosched()
			runtime.UnlockOSThread()
			return
		}
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
		}
		if err == nil {
			err = unix.Mount(dir, "/mnt", "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err == nil {
			// What a container does not have.
			err = unix.Unmount("/run/jackfield/containers", unix.MNT_DETACH)
		}
		if ready <- err; err != nil {
			return
		}
		for answer := range asked {
			for {
				fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err == nil {
					err = unix.Connect(fd, &unix.SockaddrUnix{Name: "/mnt/net/net1/vhost.sock"})
					unix.Close(fd)
				}
				if err == nil {
					break
				}
				// A container is another process: it does not hold one of ours.
				_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
				runtime.Gosched()
			}
			answer <- time.Now()
		}
	}
	go thread()
	must(b, <-ready)
	return asked
}
