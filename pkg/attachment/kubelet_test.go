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

	"github.com/jackfield/jackfield/pkg/busytest"
	"github.com/jackfield/jackfield/pkg/podresources/allocation"
)

// Nobody waits longer than the budget, or than a third of their time; and nobody
// waits twice in a moment.
func TestBudget(t *testing.T) {
	for _, tc := range []struct {
		budget, deadline, most time.Duration
	}{
		{0, 0, DefaultBudget},
		{60 * time.Millisecond, 0, 60 * time.Millisecond},
		{0, 900 * time.Millisecond, 300 * time.Millisecond},
	} {
		// A machine that is held up until the deadline has passed tells nothing.
		for tries := 1; !budget(t, tc.budget, tc.deadline, tc.most); tries++ {
			if tries == 20 {
				t.Errorf("%+v: the deadline passed each time", tc)
				break
			}
		}
	}
}

// budget asks a kubelet that hangs, several times; false when the deadline, unless it is
// 0, passed meanwhile.
func budget(t *testing.T, budget, deadline, most time.Duration) bool {
	n := newNode(t)
	kubelet := &fakeKubelet{hangs: true}
	n.useKubelet(kubelet)
	n.opts.Budget = budget
	n.cni("ns/net", "net1", pciInfo(devA))
	f := n.finder()
	for again := range 4 {
		began := time.Now()
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, deadline)
		}
		as, spare, err := f.Find(ctx, query("PCIDEVICE_INTEL_COM_VF="+devA+","+devB))
		took, passed := time.Since(began), ctx.Err() != nil
		cancel()
		if passed {
			return false
		}
		check(t, err)
		if a := one(t, as, nil); !errors.Is(a.Err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", a.Err)
		}
		if a := one(t, spare, nil); !errors.Is(a.Err, context.DeadlineExceeded) || a.DeviceID != devB {
			t.Errorf("the error is %v", a.Err)
		}
		if kubelet.left == 0 || kubelet.left > most {
			t.Errorf("budget %v, deadline %v, call %d: the kubelet has %v to answer, want %v at most", budget, deadline, again, kubelet.left, most)
		}
		if took > busytest.Hangs || again == 0 && took < most-5*time.Millisecond {
			t.Errorf("budget %v, deadline %v, call %d: took %v", budget, deadline, again, took)
		}
		most = 5 * time.Millisecond
		// It is remembered for a second, which may pass here before the next call.
		f.silence.mu.Lock()
		if len(f.silence.pods) != 1 {
			t.Errorf("of %d pods the silence is remembered", len(f.silence.pods))
		}
		for key, s := range f.silence.pods {
			s.until = time.Now().Add(time.Hour)
			f.silence.pods[key] = s
		}
		f.silence.mu.Unlock()
	}
	return true
}

// A kubelet that is back is heard at once, whatever was remembered.
func TestKubeletComesBack(t *testing.T) {
	n := newNode(t)
	k := n.gives("c1: intel.com/vf=" + devA)
	n.opts.Budget = 30 * time.Millisecond
	n.cni("ns/net", "net1", pciInfo(devA))
	f := n.finder()
	k.set(func() { k.hangs = true })
	as, err := f.Sandbox(t.Context(), query())
	if a := one(t, as, err); a.Err == nil {
		t.Error("a hanging kubelet answered")
	}
	k.set(func() { k.hangs = false })
	as, err = f.Sandbox(t.Context(), query())
	if a := one(t, as, err); a.Err != nil || a.Owner != OwnedHere {
		t.Errorf("after it came back: %+v", a)
	}
}

func (k *fakeKubelet) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// A caller who gives up is not the kubelet's silence.
func TestCancelledIsNotRemembered(t *testing.T) {
	n := newNode(t)
	k := n.gives("c1: intel.com/vf=" + devA)
	k.set(func() { k.hangs = true })
	n.cni("ns/net", "net1", pciInfo(devA))
	f := n.finder()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	as, err := f.Sandbox(ctx, query())
	if a := one(t, as, err); !errors.Is(a.Err, context.Canceled) {
		t.Errorf("the error is %v", a.Err)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	as, err = f.Sandbox(ctx, query())
	if a := one(t, as, err); !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", a.Err)
	}
	if err := f.silence.get(allocation.PodKey{Namespace: "ns", Name: "pod", UID: "uid"}, time.Now()); err != nil {
		t.Errorf("remembered: %v", err)
	}
}

func TestSilenceIsBounded(t *testing.T) {
	var s silence
	now := time.Now()
	for i := range 10 * maxRemembered {
		s.put(allocation.PodKey{Name: fmt.Sprint(i)}, errdefs.ErrUnavailable, now)
	}
	if len(s.pods) > maxRemembered {
		t.Errorf("%d pods are remembered", len(s.pods))
	}
	later := now.Add(2 * again)
	s.put(allocation.PodKey{Name: "new"}, errdefs.ErrUnavailable, later)
	if len(s.pods) != 1 || s.get(allocation.PodKey{Name: "new"}, later) == nil || s.get(allocation.PodKey{Name: "1"}, now) != nil {
		t.Errorf("remembered are %v", s.pods)
	}
}

// A socket file without a kubelet behind it, and one that is no socket: the real
// client says so at once, and the environment is not believed.
func TestRealClient(t *testing.T) {
	n := newNode(t)
	n.cni("ns/net", "net1", pciInfo(devA))
	f := n.finder()
	as, err := f.Sandbox(t.Context(), query("PCIDEVICE_INTEL_COM_VF="+devA))
	if a := one(t, as, err); a.Owner != OwnedHere || !strings.Contains(a.OwnerFrom, "environment") {
		t.Errorf("without a socket: %+v", a)
	}
	n.put(socket, "")
	as, err = f.Sandbox(t.Context(), query("PCIDEVICE_INTEL_COM_VF="+devA))
	if a := one(t, as, err); a.Err == nil || a.Owner != OwnerUnknown || !strings.Contains(a.Err.Error(), socket) {
		t.Errorf("with a file for a socket: %+v", a)
	}
}

// A socket that cannot be looked at is not one that is not there.
func TestSocketBehindALoop(t *testing.T) {
	n := newNode(t)
	n.cni("ns/net", "net1", pciInfo(devA))
	check(t, os.MkdirAll(n.path("/var/lib/kubelet"), 0o755))
	check(t, os.Symlink("pod-resources", n.path("/var/lib/kubelet/pod-resources")))
	as, err := n.finder().Sandbox(t.Context(), query("PCIDEVICE_INTEL_COM_VF="+devA))
	if a := one(t, as, err); a.Err == nil || a.Owner != OwnerUnknown {
		t.Errorf("the environment was believed: %+v", a)
	}
}

// Close leaves no descriptor and no goroutine behind.
func TestClose(t *testing.T) {
	n := newNode(t)
	n.cni("ns/net", "net1", pciInfo(devA))
	n.multus(vfNet("ns/net", devA))
	n.result("net-conf", "net1", devA)
	n.dp(vf, devA, pciInfo(devA))
	n.put(socket, "")
	use := func() {
		f, err := New(n.root, n.opts)
		check(t, err)
		f.Warm(query())
		for range 10 {
			if _, _, err := f.Find(t.Context(), query("PCIDEVICE_INTEL_COM_VF="+devA)); err != nil {
				t.Fatal(err)
			}
			_, _ = f.Resource(t.Context(), query(), vf, "")
		}
		check(t, f.Close())
		check(t, f.Close())
		if _, err := f.Sandbox(t.Context(), query()); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("a closed finder gave %v", err)
		}
	}
	use() // what the runtime itself opens at first use
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
