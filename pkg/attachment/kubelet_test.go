// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/busytest"
	"github.com/jackfield/jackfield/pkg/podresources/allocation"
)

// No call waits longer than the budget, or than a third of its remaining time. For a while, later calls for the
// same pod do not wait.
func TestBudget(t *testing.T) {
	for _, tc := range []struct {
		budget, deadline, most time.Duration
	}{
		{0, 0, DefaultBudget},
		{60 * time.Millisecond, 0, 60 * time.Millisecond},
		{0, 900 * time.Millisecond, 300 * time.Millisecond},
	} {
		// Repeat the check if a busy machine delays it beyond the deadline.
		for attempts := 1; !checkBudget(t, tc.budget, tc.deadline, tc.most); attempts++ {
			if attempts == 20 {
				t.Errorf("%+v: the deadline expired in each attempt", tc)
				break
			}
		}
	}
}

// checkBudget queries a hanging kubelet several times. It returns false if the deadline expired meanwhile; a deadline
// of 0 means none.
func checkBudget(t *testing.T, budget, deadline, most time.Duration) bool {
	n := newNode(t)
	kubelet := &fakeKubelet{hangs: true}
	n.useKubelet(kubelet)
	n.opts.Budget = budget
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	f := n.newFinder()
	for call := range 4 {
		began := time.Now()
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, deadline)
		}
		as, spare, err := f.Find(ctx, newQuery("PCIDEVICE_INTEL_COM_VF="+devA+","+devB))
		took, passed := time.Since(began), ctx.Err() != nil
		cancel()
		if passed {
			return false
		}
		check(t, err)
		if a := wantOneAttachment(t, as, nil); !errors.Is(a.Err, context.DeadlineExceeded) {
			t.Errorf("got error %v", a.Err)
		}
		if a := wantOneAttachment(t, spare, nil); !errors.Is(a.Err, context.DeadlineExceeded) || a.DeviceID != devB {
			t.Errorf("got error %v", a.Err)
		}
		if kubelet.left == 0 || kubelet.left > most {
			t.Errorf("budget %v, deadline %v, call %d: the kubelet has %v, want %v at most", budget, deadline, call, kubelet.left, most)
		}
		if took > busytest.Hangs || call == 0 && took < most-5*time.Millisecond {
			t.Errorf("budget %v, deadline %v, call %d: took %v", budget, deadline, call, took)
		}
		most = 5 * time.Millisecond
		// The pod counts as slow for a second. Extend the time, since the next call may be later.
		f.slow.mu.Lock()
		if len(f.slow.pods) != 1 {
			t.Errorf("%d slow pods are recorded", len(f.slow.pods))
		}
		for key, s := range f.slow.pods {
			s.until = time.Now().Add(time.Hour)
			f.slow.pods[key] = s
		}
		f.slow.mu.Unlock()
	}
	return true
}

// A kubelet that recovers is used at once, although the pod is recorded as slow.
func TestRecoveredKubeletIsUsedAtOnce(t *testing.T) {
	n := newNode(t)
	k := n.allocate("c1: intel.com/vf=" + devA)
	n.opts.Budget = 30 * time.Millisecond
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	f := n.newFinder()
	k.update(func() { k.hangs = true })
	as, err := f.findNetworks(t.Context(), newQuery())
	if a := wantOneAttachment(t, as, err); a.Err == nil {
		t.Error("no error from a hanging kubelet")
	}
	k.update(func() { k.hangs = false })
	as, err = f.findNetworks(t.Context(), newQuery())
	if a := wantOneAttachment(t, as, err); a.Err != nil || a.Owner != OwnedHere {
		t.Errorf("after the recovery: %+v", a)
	}
}

func (k *fakeKubelet) update(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// A pod is not recorded as slow if the caller canceled.
func TestCancelledCallIsNotRecordedAsSlow(t *testing.T) {
	n := newNode(t)
	k := n.allocate("c1: intel.com/vf=" + devA)
	k.update(func() { k.hangs = true })
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	f := n.newFinder()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	as, err := f.findNetworks(ctx, newQuery())
	if a := wantOneAttachment(t, as, err); !errors.Is(a.Err, context.Canceled) {
		t.Errorf("got error %v", a.Err)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	as, err = f.findNetworks(ctx, newQuery())
	if a := wantOneAttachment(t, as, err); !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("got error %v", a.Err)
	}
	if err := f.slow.errorOf(allocation.PodKey{Namespace: "ns", Name: "pod", UID: "uid"}, time.Now()); err != nil {
		t.Errorf("the pod is recorded as slow: %v", err)
	}
}

func TestUnresponsiveKubeletIsBounded(t *testing.T) {
	s := slowPods{pods: map[allocation.PodKey]slowPod{}}
	now := time.Now()
	for i := range 10 * maxSlowPods {
		s.remember(allocation.PodKey{Name: fmt.Sprint(i)}, errdefs.ErrUnavailable, now)
	}
	if len(s.pods) > maxSlowPods {
		t.Errorf("%d pods are recorded", len(s.pods))
	}
	later := now.Add(2 * slowPeriod)
	s.remember(allocation.PodKey{Name: "new"}, errdefs.ErrUnavailable, later)
	if len(s.pods) != 1 || s.errorOf(allocation.PodKey{Name: "new"}, later) == nil || s.errorOf(allocation.PodKey{Name: "1"}, now) != nil {
		t.Errorf("recorded pods %v", s.pods)
	}
}

// The client reports a socket without a kubelet, and a file that is not a socket, at once.
// The environment is not trusted.
func TestKubeletClientReportsInvalidSocket(t *testing.T) {
	n := newNode(t)
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	f := n.newFinder()
	as, err := f.findNetworks(t.Context(), newQuery("PCIDEVICE_INTEL_COM_VF="+devA))
	if a := wantOneAttachment(t, as, err); a.Owner != OwnedHere || !strings.Contains(a.OwnerFrom, "environment") {
		t.Errorf("without a socket: %+v", a)
	}
	n.write(socket, "")
	as, err = f.findNetworks(t.Context(), newQuery("PCIDEVICE_INTEL_COM_VF="+devA))
	if a := wantOneAttachment(t, as, err); a.Err == nil || a.Owner != OwnerUnknown || !strings.Contains(a.Err.Error(), socket) {
		t.Errorf("file in place of the socket: %+v", a)
	}
}

// A socket that cannot be checked does not count as missing.
func TestKubeletSocketBehindSymlinkLoop(t *testing.T) {
	n := newNode(t)
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	check(t, os.MkdirAll(n.path("/var/lib/kubelet"), 0o755))
	check(t, os.Symlink("pod-resources", n.path("/var/lib/kubelet/pod-resources")))
	as, err := n.newFinder().findNetworks(t.Context(), newQuery("PCIDEVICE_INTEL_COM_VF="+devA))
	if a := wantOneAttachment(t, as, err); a.Err == nil || a.Owner != OwnerUnknown {
		t.Errorf("the environment was trusted: %+v", a)
	}
}

// Close closes every descriptor and ends every goroutine.
func TestClose(t *testing.T) {
	n := newNode(t)
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
	n.writeCNIResult("net-conf", "net1", devA)
	n.writeDPFile(vf, devA, pciInfo(devA))
	n.write(socket, "")
	use := func() {
		f, err := New(n.root, n.opts)
		check(t, err)
		f.Warm(newQuery())
		for range 10 {
			if _, _, err := f.Find(t.Context(), newQuery("PCIDEVICE_INTEL_COM_VF="+devA)); err != nil {
				t.Fatal(err)
			}
			_, _ = f.Resource(t.Context(), newQuery(), vf, "")
		}
		check(t, f.Close())
		check(t, f.Close())
		if _, err := f.findNetworks(t.Context(), newQuery()); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("closed finder: %v", err)
		}
	}
	use() // the first use may open descriptors of the Go runtime
	files, routines := openFiles(t), runtime.NumGoroutine()
	for range 5 {
		use()
	}
	if !busytest.Until(func() bool { return openFiles(t) <= files && runtime.NumGoroutine() <= routines }) {
		t.Fatalf("%d open files and %d goroutines, %d and %d before", openFiles(t), runtime.NumGoroutine(), files, routines)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(fds)
}
