// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// runningRequest is that of a container that was created and holds every socket.
func runningRequest() *Request {
	r := ask("")
	r.Holds = func(string, string) bool { return true }
	return r
}

// A pass over a running container that runs out of time, or is over a directory that is
// unresponsive, is an error: a plan without the container's sockets would have them
// unmounted.
func TestRunningIsAnErrorWhenItCannotCheckEverything(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/1/s")
	h.info("one", "net1", vhost("client", "/var/run/vsw/1/s"))
	plan, err := h.e.Running(context.Background(), runningRequest())
	must(t, err)
	if len(plan.Items) != 1 || plan.Items[0].Err != nil || len(plan.Staging.Sockets)+len(plan.Staging.Dirs) == 0 && plan.Staging.Files == nil {
		t.Fatalf("in time: %+v", plan)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if plan, err := h.e.Running(ended, runningRequest()); err == nil {
		t.Errorf("out of time: a plan with %d items and no error", len(plan.Items))
	}
	h.e.answers = func(dir string) error {
		if dir == h.e.cfg.DeviceInfo.CNIDir {
			return errdefs.ErrUnavailable
		}
		return nil
	}
	if plan, err := h.e.Running(context.Background(), runningRequest()); !errdefs.IsUnavailable(err) {
		t.Errorf("an unresponsive directory: %+v, %v", plan, err)
	}
}

// What a source has that cannot be read may be what the container has: the plan says so.
func TestRunningReportsWhatItCouldNotRead(t *testing.T) {
	const multus = "/var/lib/cni/multus"
	for name, tc := range map[string]struct {
		spoil func(h *host)
		ns    string
		want  string // in Unchecked
	}{
		"nothing wrong":  {spoil: func(*host) {}},
		"Multus' record": {spoil: func(h *host) { h.write(multus+"/sb", "{") }, want: multus + "/sb"},
		"the directory of device-info is gone": {spoil: func(h *host) {
			must(h.t, os.RemoveAll(filepath.Join(h.dir, "run/k8s.cni.cncf.io/devinfo/cni")))
		}, want: "deviceInfo.cniDir"},
		"a file of a network without a rule": {spoil: func(h *host) { h.info("one", "net1", "{") }, ns: "other", want: "net1"},
		"a socket root of a network without a rule": {spoil: func(h *host) {
			h.e.answers = func(dir string) error {
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
			h.info("one", "net1", vhost("client", "/var/run/vsw/1/s"))
			tc.spoil(h)
			r := runningRequest()
			if tc.ns != "" {
				r.Namespace = tc.ns
			}
			plan, err := h.e.Running(context.Background(), r)
			must(t, err)
			var got []string
			for _, err := range plan.Unchecked {
				got = append(got, err.Error())
			}
			if tc.want == "" != (len(got) == 0) || !strings.Contains(strings.Join(got, "; "), tc.want) {
				t.Errorf("unchecked is %q, want %q", got, tc.want)
			}
		})
	}
}

// Without a free descriptor no directory can be read: that is an error, and not a sandbox
// without networks.
func TestRunningWithoutDescriptorsIsAnError(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/1/s")
	h.info("one", "net1", vhost("client", "/var/run/vsw/1/s"))
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}))
	plan, err := h.e.Running(context.Background(), runningRequest())
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	if err == nil {
		t.Errorf("a plan and no error: %+v", plan)
	}
}
