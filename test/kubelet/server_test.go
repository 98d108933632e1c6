// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	podresources "github.com/jackfield/jackfield/internal/source/kubelet"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
	"github.com/jackfield/jackfield/test/kubelet"
)

// longTimeout is for calls that are answered, also on a busy machine, and shortTimeout for
// calls that are not. The server's delay is longer than both.
const (
	longTimeout  = 2 * time.Minute
	shortTimeout = 300 * time.Millisecond
)

func start(t *testing.T) (*kubelet.Server, hostfs.Root) {
	t.Helper()
	dir := t.TempDir()
	s, err := kubelet.StartUnder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.SetPods(
		kubelet.Pod("other", "pod", kubelet.Container("c", kubelet.Device("example.com/vf", "9"))),
		kubelet.Pod("ns", "pod",
			kubelet.Container("a", kubelet.Device("example.com/vf", "2", "1")),
			kubelet.Container("b", kubelet.Claim("ns", "claim", "example.com", "dev0", "example.com/net=dev0"))))
	root, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, root
}

// asker returns a function that asks about the pod.
func asker(t *testing.T, root hostfs.Root, timeout time.Duration) func() (allocation.Allocation, error) {
	return func() (allocation.Allocation, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		began := time.Now()
		a, err := podresources.QueryPod(ctx, root, kubelet.SocketPath, "ns", "pod")
		if d := time.Since(began); d > timeout+10*time.Second {
			t.Errorf("took %v, with a timeout of %v", d, timeout)
		}
		return a, err
	}
}

func check(t *testing.T, a allocation.Allocation, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	got := fmt.Sprint(a)
	if want := "[{a [{example.com/vf [1 2]}] []} {b [] [{ns claim example.com node dev0}]}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestClientSupportsEveryKubeletGeneration(t *testing.T) {
	s, root := start(t)
	ask := asker(t, root, longTimeout)
	for _, g := range []kubelet.Generation{kubelet.WithGet, kubelet.GetDisabled, kubelet.WithoutGet} {
		s.SetGeneration(g)
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		before := s.Calls()
		for range 2 {
			a, err := ask()
			check(t, a, err)
		}
		after := s.Calls()
		if got := (kubelet.Calls{Get: after.Get - before.Get, List: after.List - before.List}); got != (kubelet.Calls{List: 2}) {
			t.Errorf("generation %d: %+v, want one List for each of two questions", g, got)
		}
	}
}

// If the kubelet is absent or slow, returns errors or sends invalid answers, a call takes at most its
// timeout. The client works again when the kubelet does.
func TestClientRecoversFromKubeletFailures(t *testing.T) {
	s, root := start(t)
	ask, askBriefly := asker(t, root, longTimeout), asker(t, root, shortTimeout)
	works := func() { a, err := ask(); check(t, a, err) }
	works()

	s.Stop()
	if _, err := ask(); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("absent: %v", err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err == nil {
		t.Error("started twice")
	}
	works()

	s.SetDelay(10 * time.Minute)
	if _, err := askBriefly(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("slow: %v", err)
	}
	s.SetDelay(0)
	works()

	s.SetError(status.Error(codes.PermissionDenied, "no"))
	if _, err := ask(); !errors.Is(err, errdefs.ErrPermissionDenied) {
		t.Errorf("permission denied: %v", err)
	}
	s.SetError(nil)
	works()

	for _, g := range []kubelet.Generation{kubelet.WithGet, kubelet.WithoutGet} {
		s.SetGeneration(g)
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		for _, l := range kubelet.Lies() {
			s.SetLie(l, "ns", "pod")
			_, err := askBriefly()
			if err == nil || !strings.Contains(err.Error(), kubelet.SocketPath) {
				t.Errorf("generation %d, %v: %v", g, l, err)
			}
		}
		s.SetLie(kubelet.Honest, "", "")
		works()
	}
}
