// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestAbsent(t *testing.T) {
	root := newRoot(t)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	c := newClient(t, root, Options{})
	settle(t, goroutines, fds) // a client that was not asked has none
	began := time.Now()
	for range 100 {
		_, err := c.Pod(t.Context(), key)
		wantErr(t, err, errdefs.ErrUnavailable, socket, "no such file", "is the kubelet running")
	}
	if d := time.Since(began); d > 100*waits {
		t.Errorf("100 questions took %v", d)
	}
	settle(t, goroutines, fds)
	// The kubelet comes up: nothing has to be told.
	(&fake{pods: []*v1.PodResources{pod("ns", "pod")}}).start(t, root)
	if _, err := c.Pod(t.Context(), key); err != nil {
		t.Error(err)
	}
}

func TestNobodyListens(t *testing.T) {
	root := newRoot(t)
	listen(t, root).Close()
	c := newClient(t, root, Options{})
	began := time.Now()
	for range 20 {
		_, err := c.Pod(t.Context(), key)
		wantErr(t, err, errdefs.ErrUnavailable, socket, "nobody listens", "connection refused")
	}
	if d := time.Since(began); d > 20*waits {
		t.Errorf("20 questions took %v", d)
	}
}

// A kubelet that ends before it has answered anything says nothing of itself.
func TestEndsInTheHandshake(t *testing.T) {
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
	c := newClient(t, root, Options{})
	for range 10 {
		_, err := c.Pod(t.Context(), key)
		wantErr(t, err, errdefs.ErrUnavailable, socket, "ended the connection before a first answer", "is the kubelet restarting?")
		if strings.Contains(err.Error(), "/proc/self/fd") {
			t.Errorf("speaks of this process: %v", err)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
	}{
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, syscall.ECONNRESET},
		{io.EOF, io.EOF},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, nil},
		{&net.OpError{Op: "read", Err: net.ErrClosed}, nil},
	} {
		if got := cut(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestNotASocket(t *testing.T) {
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
			_, err := newClient(t, root, Options{}).Pod(t.Context(), key)
			wantErr(t, err, errdefs.ErrInvalidArgument, socket, name)
		})
	}
}

// A socket whose symlink leads out of the host root is not the kubelet's.
func TestSymlinkStaysInside(t *testing.T) {
	outside, root := newRoot(t), newRoot(t)
	(&fake{pods: []*v1.PodResources{pod("ns", "pod")}}).start(t, outside)
	p := root.Path(socket)
	if err := os.MkdirAll(p[:strings.LastIndex(p, "/")], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside.Path(socket), p); err != nil {
		t.Fatal(err)
	}
	_, err := newClient(t, root, Options{}).Pod(t.Context(), key)
	wantErr(t, err, errdefs.ErrUnavailable)
}

func TestSlow(t *testing.T) {
	root := newRoot(t)
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=1"))}, delay: time.Hour}
	f.start(t, root)
	c := newClient(t, root, Options{Timeout: time.Second, CallTimeout: time.Hour})
	patient := newClient(t, root, Options{Timeout: time.Hour})
	var wg sync.WaitGroup
	ask := func(c *Client, ctx context.Context, atLeast time.Duration, sentinel error) {
		began := time.Now()
		wg.Go(func() {
			_, err := c.Pod(ctx, key)
			if d := time.Since(began); d < atLeast || d > ages {
				t.Errorf("returned after %v, want %v at least and not ages", d, atLeast)
			}
			if !errors.Is(err, sentinel) {
				t.Errorf("error is %v, want %v", err, sentinel)
			}
		})
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	given, giveUp := context.WithCancel(t.Context())
	for range 20 {
		ask(c, t.Context(), 990*time.Millisecond, context.DeadlineExceeded)
	}
	// Of these the client's own time is not the reason; those who go on are not disturbed.
	for _, c := range []*Client{patient, c} {
		ask(c, short, 0, context.DeadlineExceeded)
	}
	ask(patient, given, 90*time.Millisecond, context.Canceled)
	time.AfterFunc(100*time.Millisecond, giveUp)
	wg.Wait()
	if n := f.gets.Load(); n > 2 {
		t.Errorf("%d requests of two clients for one pod", n)
	}
	_, err := c.Pod(t.Context(), key)
	wantErr(t, err, context.DeadlineExceeded, `"ns/pod"`, socket, "within 1s")
	began := time.Now()
	c.Close()
	if d := time.Since(began); d > ages {
		t.Errorf("Close took %v", d)
	}
}

// The answer of a slow kubelet serves the next attempt.
func TestLateAnswerIsKept(t *testing.T) {
	root := newRoot(t)
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=1"))}}
	answer := f.hold()
	f.start(t, root)
	c := newClient(t, root, Options{Timeout: 50 * time.Millisecond, CallTimeout: time.Hour})
	c.Prefetch(key)
	_, err := c.Pod(t.Context(), key)
	wantErr(t, err, context.DeadlineExceeded)
	answer()
	for end := time.Now().Add(ages); errors.Is(err, context.DeadlineExceeded) && time.Now().Before(end); {
		_, err = c.Pod(t.Context(), key)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := f.gets.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestRestart(t *testing.T) {
	root := newRoot(t)
	first := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=1"))}, getErr: unimplemented}
	first.start(t, root)
	c := newClient(t, root, Options{})
	get := func(uid, want string) {
		t.Helper()
		a, err := c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod", UID: uid})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Containers[0].IDs("r")[0]; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	get("a", "1")
	// The kubelet ends and another takes its place.
	var second *fake
	took := ages
	// grpc's own backoff would be a second at least, each time.
	for last, i := first, 0; i < 20 && took > 800*time.Millisecond; last, i = second, i+1 {
		last.stop()
		uid := fmt.Sprint("b", i)
		_, err := c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod", UID: uid})
		wantErr(t, err, errdefs.ErrUnavailable, socket)
		second = &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=2"))}}
		second.start(t, root)
		began := time.Now()
		get(uid, "2")
		took = time.Since(began)
		if second.gets.Load() != 1 {
			t.Error("the new kubelet was not asked for Get")
		}
	}
	if took > 800*time.Millisecond {
		t.Errorf("took %v after each restart", took)
	}
	// The socket is replaced while the old kubelet still serves.
	third := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=3"))}}
	third.start(t, root)
	get("c", "3")
	// The kubelet ends during the question.
	third.delay = time.Hour
	asked := third.gets.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(ages); third.gets.Load() == asked && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		second.start(t, root)
		third.stop()
	}()
	get("d", "2")
	<-done
	// The socket goes away for good.
	os.Remove(root.Path(socket))
	_, err := c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod", UID: "e"})
	wantErr(t, err, errdefs.ErrUnavailable, "no such file")
	if c.conn != nil {
		t.Error("the connection to the removed socket is kept")
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	root := newRoot(t)
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod")}}
	f.start(t, root)
	slow := newRoot(t)
	(&fake{delay: time.Hour}).start(t, slow)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	for range 5 {
		c, err := New(root, "", Options{Timeout: ages})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Pod(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		d, err := New(slow, "", Options{Timeout: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		d.Pod(t.Context(), key)
		c.Close()
		d.Close()
		c.Close()
		_, err = c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "other", UID: "uid"})
		wantErr(t, err, errdefs.ErrUnavailable, "closed")
	}
	settle(t, goroutines, fds)
}

func TestIdleConnectionGoes(t *testing.T) {
	root := newRoot(t)
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod")}}
	f.start(t, root)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	c := newClient(t, root, Options{IdleTimeout: 50 * time.Millisecond})
	for i := range 3 {
		if _, err := c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod", UID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		settle(t, goroutines, fds)
	}
}
