// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// No call waits longer than a second, or than half of its remaining time.
func TestUnresponsiveKubeletIsBounded(t *testing.T) {
	for _, tc := range []struct{ deadline, most time.Duration }{
		{0, maxKubeletWait},
		{900 * time.Millisecond, 450 * time.Millisecond},
	} {
		// Repeat the check if a busy machine delays it beyond the deadline.
		for attempts := 1; !checkWait(t, tc.deadline, tc.most); attempts++ {
			if attempts == 20 {
				t.Errorf("%+v: the deadline expired in each attempt", tc)
				break
			}
		}
	}
}

// checkWait queries a hanging kubelet. It returns false if the deadline expired meanwhile; a deadline of 0 means none.
func checkWait(t *testing.T, deadline, most time.Duration) bool {
	n := newNode(t)
	kubelet := &fakeKubelet{hangs: true}
	n.useKubelet(kubelet)
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	began := time.Now() // before the deadline is set: the kubelet gets half of what is left of it
	ctx, cancel := t.Context(), context.CancelFunc(func() {})
	if deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, deadline)
	}
	defer cancel()
	search := n.newFinder().Search(ctx, newQuery("PCIDEVICE_INTEL_COM_VF="+devA+","+devB))
	as, spare, err := search.Find()
	took := time.Since(began)
	if ctx.Err() != nil {
		return false
	}
	testkit.Must(t, err)
	if a := wantOneAttachment(t, as, nil); !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("got error %v", a.Err)
	}
	if a := wantOneAttachment(t, spare, nil); !errors.Is(a.Err, context.DeadlineExceeded) || a.DeviceID != devB {
		t.Errorf("got error %v", a.Err)
	}
	if _, err := search.Resource(vf, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("resource: got error %v", err)
	}
	if n := kubelet.countCalls(); n != 1 {
		t.Errorf("the kubelet was called %d times, want 1", n)
	}
	if kubelet.left == 0 || kubelet.left > most {
		t.Errorf("deadline %v: the kubelet has %v, want %v at most", deadline, kubelet.left, most)
	}
	if took > testkit.Hangs || took < most-5*time.Millisecond {
		t.Errorf("deadline %v: took %v", deadline, took)
	}
	return true
}

// A kubelet that recovers is used at once.
func TestRecoveredKubeletIsUsedAtOnce(t *testing.T) {
	n := newNode(t)
	k := n.allocate("c1: intel.com/vf=" + devA)
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

// The error says whether the caller canceled or ran out of time.
func TestErrorTellsCancelledFromTimedOut(t *testing.T) {
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
	testkit.Must(t, os.MkdirAll(n.path("/var/lib/kubelet"), 0o755))
	testkit.Must(t, os.Symlink("pod-resources", n.path("/var/lib/kubelet/pod-resources")))
	as, err := n.newFinder().findNetworks(t.Context(), newQuery("PCIDEVICE_INTEL_COM_VF="+devA))
	if a := wantOneAttachment(t, as, err); a.Err == nil || a.Owner != OwnerUnknown {
		t.Errorf("the environment was trusted: %+v", a)
	}
}

// Close closes every descriptor and ends every goroutine.
func TestFinderCloseLeaksNothing(t *testing.T) {
	n := newNode(t)
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
	n.writeCNIResult("net-conf", "net1", devA)
	n.writeDPFile(vf, devA, pciInfo(devA))
	n.write(socket, "")
	use := func() {
		f, err := New(n.root, n.opts)
		testkit.Must(t, err)
		for range 10 {
			if _, _, err := f.Search(t.Context(), newQuery("PCIDEVICE_INTEL_COM_VF="+devA)).Find(); err != nil {
				t.Fatal(err)
			}
			_, _ = f.Search(t.Context(), newQuery()).Resource(vf, "")
		}
		testkit.Must(t, f.Close())
		testkit.Must(t, f.Close())
		if _, err := f.findNetworks(t.Context(), newQuery()); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("closed finder: %v", err)
		}
	}
	use() // the first use may open descriptors of the Go runtime
	files, routines := openFiles(t), runtime.NumGoroutine()
	for range 5 {
		use()
	}
	if !testkit.Until(func() bool { return openFiles(t) <= files && runtime.NumGoroutine() <= routines }) {
		t.Fatalf("%d open files and %d goroutines, %d and %d before", openFiles(t), runtime.NumGoroutine(), files, routines)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	testkit.Must(t, err)
	return len(fds)
}
