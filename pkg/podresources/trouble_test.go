// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestAbsent(t *testing.T) {
	root := newRoot(t)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	c := newClient(t, root, Options{})
	if n := runtime.NumGoroutine(); n != goroutines {
		t.Errorf("a client that was not asked has %d goroutines", n-goroutines)
	}
	began := time.Now()
	for range 100 {
		_, err := c.Pod(t.Context(), key)
		wantErr(t, err, errdefs.ErrUnavailable, socket, "no such file", "is the kubelet running")
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("100 questions took %v", d)
	}
	settle(t, goroutines)
	if n := descriptors(t); n != fds {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
	// The kubelet comes up: nothing has to be told.
	(&fake{pods: []*v1.PodResources{pod("ns", "pod")}}).start(t, root)
	if _, err := c.Pod(t.Context(), key); err != nil {
		t.Error(err)
	}
}

func TestNobodyListens(t *testing.T) {
	root := newRoot(t)
	f := &fake{}
	f.start(t, root)
	f.srv.Stop()
	c := newClient(t, root, Options{})
	began := time.Now()
	for range 20 {
		_, err := c.Pod(t.Context(), key)
		wantErr(t, err, errdefs.ErrUnavailable, socket, "nobody listens", "connection refused")
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("20 questions took %v", d)
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
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=1"))}, delay: 10 * time.Second}
	f.start(t, root)
	c := newClient(t, root, Options{Timeout: time.Second})
	var wg sync.WaitGroup
	ask := func(ctx context.Context, atLeast, atMost time.Duration, sentinel error) {
		wg.Go(func() {
			began := time.Now()
			_, err := c.Pod(ctx, key)
			if d := time.Since(began); d < atLeast || d > atMost {
				t.Errorf("returned after %v, want %v to %v", d, atLeast, atMost)
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
		ask(t.Context(), 990*time.Millisecond, 3*time.Second, context.DeadlineExceeded)
	}
	ask(short, 0, 800*time.Millisecond, context.DeadlineExceeded)
	ask(given, 90*time.Millisecond, 800*time.Millisecond, context.Canceled)
	time.AfterFunc(100*time.Millisecond, giveUp)
	wg.Wait()
	if n := f.gets.Load(); n != 1 {
		t.Errorf("%d requests for one pod", n)
	}
	_, err := c.Pod(t.Context(), key)
	wantErr(t, err, context.DeadlineExceeded, `"ns/pod"`, socket, "within 1s")
	began := time.Now()
	c.Close()
	if d := time.Since(began); d > time.Second {
		t.Errorf("Close took %v", d)
	}
}

// The answer of a slow kubelet serves the next attempt.
func TestLateAnswerIsKept(t *testing.T) {
	root := newRoot(t)
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=1"))}, delay: 300 * time.Millisecond}
	f.start(t, root)
	c := newClient(t, root, Options{Timeout: 100 * time.Millisecond})
	c.Prefetch(key)
	_, err := c.Pod(t.Context(), key)
	wantErr(t, err, context.DeadlineExceeded)
	time.Sleep(350 * time.Millisecond)
	if _, err := c.Pod(t.Context(), key); err != nil {
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
	first.srv.Stop()
	_, err := c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod", UID: "b"})
	wantErr(t, err, errdefs.ErrUnavailable, socket)
	second := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=2"))}}
	second.start(t, root)
	began := time.Now()
	get("b", "2")
	// grpc's own backoff would be a second at least.
	if d := time.Since(began); d > 900*time.Millisecond {
		t.Errorf("took %v after the restart", d)
	}
	if second.gets.Load() != 1 {
		t.Error("the new kubelet was not asked for Get")
	}
	// The socket is replaced while the old kubelet still serves.
	third := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=3"))}}
	third.start(t, root)
	get("c", "3")
	// The kubelet ends during the question.
	third.delay = 200 * time.Millisecond
	time.AfterFunc(100*time.Millisecond, func() { second.start(t, root); third.srv.Stop() })
	get("d", "2")
	// The socket goes away for good.
	os.Remove(root.Path(socket))
	_, err = c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod", UID: "e"})
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
	(&fake{delay: 10 * time.Second}).start(t, slow)
	time.Sleep(20 * time.Millisecond)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	for range 5 {
		c, err := New(root, "", Options{})
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
	settle(t, goroutines)
	if n := descriptors(t); n > fds {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
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
		settle(t, goroutines)
		if n := descriptors(t); n > fds {
			t.Errorf("%d descriptors, %d before", n, fds)
		}
	}
}
