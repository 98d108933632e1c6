// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestSocketDoesNotExist(t *testing.T) {
	root := newRoot(t)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	c := newClient(t, root)
	checkLeaks(t, goroutines, fds) // an unused client has none
	began := time.Now()
	for range 100 {
		_, err := c.Pod(t.Context(), "ns", "pod")
		wantErr(t, err, errdefs.ErrUnavailable, socket, "no such file", "is the kubelet running")
	}
	if d := time.Since(began); d > 100*noDelay {
		t.Errorf("100 questions took %v", d)
	}
	checkLeaks(t, goroutines, fds)
	// The kubelet starts.
	(&fake{pods: []*v1.PodResources{pod("ns", "pod")}}).start(t, root)
	if _, err := c.Pod(t.Context(), "ns", "pod"); err != nil {
		t.Error(err)
	}
}

func TestSocketWithoutListener(t *testing.T) {
	root := newRoot(t)
	listen(t, root).Close()
	c := newClient(t, root)
	began := time.Now()
	for range 20 {
		_, err := c.Pod(t.Context(), "ns", "pod")
		wantErr(t, err, errdefs.ErrUnavailable, socket, "nothing listens", "connection refused")
	}
	if d := time.Since(began); d > 20*noDelay {
		t.Errorf("20 questions took %v", d)
	}
}

// A kubelet may end before it answers.
func TestConnectionEndsInHandshake(t *testing.T) {
	root := newRoot(t)
	l := listen(t, root)
	t.Cleanup(func() { l.Close() })
	go func() {
		for i := 0; ; i++ {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			if i%2 == 0 {
				nc.Read(make([]byte, 8)) // part of what is sent: the rest is reset
			}
			nc.Close()
		}
	}()
	c := newClient(t, root)
	for range 10 {
		_, err := c.Pod(t.Context(), "ns", "pod")
		wantErr(t, err, errdefs.ErrUnavailable, socket, "ended the connection before it answered", "is the kubelet restarting?")
		if strings.Contains(err.Error(), "/proc/self/fd") {
			t.Errorf("names a descriptor of this process: %v", err)
		}
	}
}

func TestSocketPathIsOtherFile(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"regular file": func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"directory":    func(p string) error { return os.Mkdir(p, 0o700) },
		"FIFO":         func(p string) error { return mkfifo(p) },
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			p := root.Path(socket)
			if err := os.MkdirAll(p[:strings.LastIndex(p, "/")], 0o755); err != nil {
				t.Fatal(err)
			}
			if err := make(p); err != nil {
				t.Fatal(err)
			}
			_, err := newClient(t, root).Pod(t.Context(), "ns", "pod")
			wantErr(t, err, errdefs.ErrInvalidArgument, socket, name)
		})
	}
}

// A symlink out of the host root is resolved inside it.
func TestSymlinkStaysBelowHostRoot(t *testing.T) {
	outside, root := newRoot(t), newRoot(t)
	(&fake{pods: []*v1.PodResources{pod("ns", "pod")}}).start(t, outside)
	p := root.Path(socket)
	if err := os.MkdirAll(p[:strings.LastIndex(p, "/")], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside.Path(socket), p); err != nil {
		t.Fatal(err)
	}
	_, err := newClient(t, root).Pod(t.Context(), "ns", "pod")
	wantErr(t, err, errdefs.ErrUnavailable)
}

func TestSlowKubeletIsNotWaitedFor(t *testing.T) {
	root := newRoot(t)
	(&fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=1"))}, delay: time.Hour}).start(t, root)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	c := newClient(t, root)
	var wg sync.WaitGroup
	began := time.Now() // before the contexts
	ask := func(ctx context.Context, atLeast time.Duration, sentinel error) {
		wg.Go(func() {
			_, err := c.Pod(ctx, "ns", "pod")
			if d := time.Since(began); d < atLeast || d > hangTimeout {
				t.Errorf("returned after %v, want %v at least and not hangTimeout", d, atLeast)
			}
			if !errors.Is(err, sentinel) || !strings.Contains(err.Error(), `"ns/pod"`) || !strings.Contains(err.Error(), socket) {
				t.Errorf("error is %v, want %v", err, sentinel)
			}
		})
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	long, cancelLong := context.WithTimeout(t.Context(), time.Second)
	defer cancelLong()
	given, giveUp := context.WithCancel(t.Context())
	for range 20 {
		ask(long, 990*time.Millisecond, context.DeadlineExceeded)
	}
	// These end by their context. The other calls continue.
	ask(short, 40*time.Millisecond, context.DeadlineExceeded)
	ask(given, 90*time.Millisecond, context.Canceled)
	time.AfterFunc(100*time.Millisecond, giveUp)
	wg.Wait()
	checkLeaks(t, goroutines, fds)
}

func TestKubeletRestarts(t *testing.T) {
	root := newRoot(t)
	first := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=1"))}}
	first.start(t, root)
	c := newClient(t, root)
	get := func(want string) {
		t.Helper()
		a, err := c.Pod(t.Context(), "ns", "pod")
		if err != nil {
			t.Fatal(err)
		}
		if got := a[0].IDs("r")[0]; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	get("1")
	// The kubelet restarts.
	var second *fake
	took := hangTimeout
	// grpc's own backoff would be a second at least, each time.
	for last, i := first, 0; i < 20 && took > 800*time.Millisecond; last, i = second, i+1 {
		last.stop()
		_, err := c.Pod(t.Context(), "ns", "pod")
		wantErr(t, err, errdefs.ErrUnavailable, socket)
		second = &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=2"))}}
		second.start(t, root)
		began := time.Now()
		get("2")
		took = time.Since(began)
		if second.lists.Load() != 1 {
			t.Error("the new kubelet was not asked")
		}
	}
	if took > 800*time.Millisecond {
		t.Errorf("took %v after each restart", took)
	}
	// The socket is replaced while the old kubelet still serves.
	third := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=3"))}}
	third.start(t, root)
	get("3")
	// The kubelet restarts during the request.
	third.delay = time.Hour
	asked := third.lists.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(hangTimeout); third.lists.Load() == asked && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		second.start(t, root)
		third.stop()
	}()
	get("2")
	<-done
	// The socket is removed.
	os.Remove(root.Path(socket))
	_, err := c.Pod(t.Context(), "ns", "pod")
	wantErr(t, err, errdefs.ErrUnavailable, "no such file")
}

// The dialer can notice the end of the time before the context does.
func TestDialTimeoutIsDeadlineExceeded(t *testing.T) {
	q := query{namespace: "ns", name: "pod", socket: socket}
	err := q.dialFailed(&net.OpError{Op: "dial", Net: "unix", Err: os.ErrDeadlineExceeded})
	wantErr(t, err, context.DeadlineExceeded, socket, "no answer in time")
}

func TestConnectionIsClosedAfterEachRequest(t *testing.T) {
	root := newRoot(t)
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod")}}
	f.start(t, root)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	c := newClient(t, root)
	for range 3 {
		if _, err := c.Pod(t.Context(), "ns", "pod"); err != nil {
			t.Fatal(err)
		}
		checkLeaks(t, goroutines, fds)
	}
}
