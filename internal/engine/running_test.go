// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// newRunningRequest returns the request of a running container that has all its sockets.
func newRunningRequest() *Request {
	r := newRequest("")
	r.HasSocket = func(string, string) bool { return true }
	return r
}

// ResolveRunning fails after its deadline and if a directory is unresponsive. A plan without the container's sockets
// would unmount them.
func TestResolveRunningFailsWhenIncomplete(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/1/s")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/1/s"))
	plan, err := h.e.ResolveRunning(context.Background(), newRunningRequest())
	testkit.Must(t, err)
	if len(plan.Items) != 1 || plan.Items[0].Err != nil || len(plan.Staging.Sockets)+len(plan.Staging.Dirs) == 0 && plan.Staging.Files == nil {
		t.Fatalf("before the deadline: %+v", plan)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if plan, err := h.e.ResolveRunning(ended, newRunningRequest()); err == nil {
		t.Errorf("after the deadline: a plan with %d items and no error", len(plan.Items))
	}
	h.e.opts.CheckResponsive = func(dir string) error {
		if dir == h.e.cfg.DeviceInfo.CNIDir {
			return errdefs.ErrUnavailable
		}
		return nil
	}
	if plan, err := h.e.ResolveRunning(context.Background(), newRunningRequest()); !errdefs.IsUnavailable(err) {
		t.Errorf("unresponsive directory: plan %+v, error %v", plan, err)
	}
}

// The plan lists sources that cannot be read, because the container's sockets may come from them.
func TestResolveRunningReportsUnreadSources(t *testing.T) {
	const multus = "/var/lib/cni/multus"
	for name, tc := range map[string]struct {
		breakSource func(h *host)
		ns          string
		want        string // in Unchecked
	}{
		"all sources valid":     {breakSource: func(*host) {}},
		"invalid Multus record": {breakSource: func(h *host) { h.write(multus+"/sb", "{") }, want: multus + "/sb"},
		"missing device-info directory": {breakSource: func(h *host) {
			testkit.Must(h.t, os.RemoveAll(filepath.Join(h.dir, "run/k8s.cni.cncf.io/devinfo/cni")))
		}, want: "deviceInfo.cniDir"},
		"invalid file of a network without a rule": {breakSource: func(h *host) { h.writeInfo("one", "net1", "{") }, ns: "other", want: "net1"},
		"unresponsive socket root of a network without a rule": {breakSource: func(h *host) {
			h.e.opts.CheckResponsive = func(dir string) error {
				if dir == "/var/run/vsw" {
					return errdefs.ErrUnavailable
				}
				return nil
			}
		}, ns: "other", want: "net1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "enforce")
			h.listen("/run/vsw/1/s")
			h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/1/s"))
			tc.breakSource(h)
			r := newRunningRequest()
			if tc.ns != "" {
				r.Namespace = tc.ns
			}
			plan, err := h.e.ResolveRunning(context.Background(), r)
			testkit.Must(t, err)
			var got []string
			for _, err := range plan.Unchecked {
				got = append(got, err.Error())
			}
			if tc.want == "" != (len(got) == 0) || !strings.Contains(strings.Join(got, "; "), tc.want) {
				t.Errorf("Unchecked is %q, want %q", got, tc.want)
			}
		})
	}
}

// Without a free descriptor no directory can be read. ResolveRunning then fails instead of reporting a sandbox without
// networks.
func TestResolveRunningFailsWithoutDescriptors(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/1/s")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/1/s"))
	var limit unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
	plan, err := h.e.ResolveRunning(context.Background(), newRunningRequest())
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	if err == nil {
		t.Errorf("got plan %+v and no error", plan)
	}
}
