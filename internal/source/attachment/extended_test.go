// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

const (
	podsSocket    = "/var/lib/kubelet/pods-api/pods-api.sock"
	extendedClaim = "pod-extended-resources-x7k2p"
)

// fakePods is the Pods API of a kubelet.
type fakePods struct {
	pod   *allocation.Pod
	err   error
	hangs bool
	uid   string // of the last query
	calls int
	left  time.Duration // remaining time of the last call
}

func (f *fakePods) query(ctx context.Context, _ hostfs.Root, _, namespace, name, uid string) (*allocation.Pod, error) {
	f.calls++
	f.uid = uid
	if deadline, ok := ctx.Deadline(); ok {
		f.left = time.Until(deadline)
	}
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.err != nil || namespace != "ns" || name != "pod" {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, f.err)
	}
	return f.pod, nil
}

// servePods starts the Pods API with a pod whose extended resources have a claim. A request has the form
// "c1: acme.com/nic=container-0-request-0".
func (n *node) servePods(requests ...string) *fakePods {
	n.t.Helper()
	f := &fakePods{pod: &allocation.Pod{UID: "u1"}}
	for _, r := range requests {
		container, rest, _ := strings.Cut(r, ": ")
		resource, request, _ := strings.Cut(rest, "=")
		f.pod.ExtendedClaim = extendedClaim
		f.pod.Extended = append(f.pod.Extended, allocation.ExtendedRequest{Container: container, Resource: resource, Request: request})
	}
	n.opts.PodsSocket, n.opts.Pods = podsSocket, f.query
	n.write(podsSocket, "")
	return f
}

// Kubernetes has one claim for all extended resources of a pod, and the kubelet lists all of its devices for each
// container. The container gets the devices of its own requests for the resource.
func TestExtendedResourceOfDRADriver(t *testing.T) {
	n := newNode(t)
	n.writeMetadata(extendedClaim, "container-0-request-0", "nic-0 "+pciAttribute(devA), "nic-1 "+pciAttribute(devB))
	n.writeMetadata(extendedClaim, "container-0-request-1", `port-0 "attributes": {"vhost-user-path": {"string": "/run/vsw/p0"}}`)
	n.writeMetadata(extendedClaim, "container-1-request-0", `nic-2 `+pciAttribute("0000:03:00.5"))
	all := strings.ReplaceAll(" C=nic-0 C=nic-1 C=port-0 C=nic-2", "C", extendedClaim)
	n.allocateClaims("c1:"+all, "c2:"+all, "c3: nics=nic-9")
	pods := n.servePods("c1: acme.com/nic=container-0-request-0", "c1: acme.com/port=container-0-request-1", "c2: acme.com/nic=container-1-request-0")
	f := n.newFinder()
	devices := func(container, resource, id string) string {
		q := newQuery()
		q.Container, q.PodUID = container, "u1"
		found, err := f.Search(t.Context(), q).Resource(resource, id)
		if err != nil {
			return err.Error()
		}
		var got []string
		for _, a := range found {
			testkit.Must(t, a.Err)
			if a.Resource != resource || a.Owner != OwnedHere || a.Claimed == nil || a.Claimed.Claim != extendedClaim {
				t.Errorf("%+v", a)
			}
			got = append(got, a.DeviceID+" "+a.Device)
		}
		return strings.Join(got, ", ")
	}
	for _, c := range []struct{ container, resource, id, want string }{
		{"c1", "acme.com/nic", "", "nic-0 " + devA + ", nic-1 " + devB},
		{"c1", "acme.com/nic", "nic-1", "nic-1 " + devB},
		{"c1", "acme.com/nic", devA, "nic-0 " + devA},
		{"c1", "acme.com/port", "", "port-0 "},
		{"c2", "acme.com/nic", "", "nic-2 0000:03:00.5"},
	} {
		if got := devices(c.container, c.resource, c.id); got != c.want {
			t.Errorf("%s %s %s: got %s, want %s", c.container, c.resource, c.id, got, c.want)
		}
	}
	// Kubelets of 1.37 do not report the claim; then its generated name decides.
	pods.pod.ExtendedClaim = ""
	if got := devices("c2", "acme.com/nic", ""); got != "nic-2 0000:03:00.5" {
		t.Errorf("without the claim's name: %s", got)
	}
	pods.pod.ExtendedClaim = extendedClaim
	if pods.uid != "u1" {
		t.Errorf("the pod was requested by the UID %q", pods.uid)
	}
	for _, c := range []struct{ container, resource, id, says string }{
		{"c1", "acme.com/nic", "nic-2", `device "nic-2" is not allocated to the container, which has nic-0, nic-1`},
		{"c2", "acme.com/port", "", "no request of resource claim"},
		{"c3", "acme.com/nic", "", "the kubelet allocated none of it"},
	} {
		if got := devices(c.container, c.resource, c.id); !strings.Contains(got, c.says) {
			t.Errorf("%s %s %s: got %s, want %s", c.container, c.resource, c.id, got, c.says)
		}
	}

	// Without an annotation the same devices are discovered, with their resource.
	q := n.claimQuery(metadataPath(extendedClaim, "container-0-request-1"))
	a := wantOneAttachment(t, must(f.findAllocated(t.Context(), q)), nil)
	if a.Resource != "acme.com/port" || a.Claimed.Name() != extendedClaim+"/container-0-request-1" {
		t.Errorf("%+v", a)
	}
}

func TestExtendedResourceErrors(t *testing.T) {
	const request = "c1: acme.com/nic=container-0-request-0"
	for _, c := range []struct {
		name  string
		setup func(n *node)
		is    func(error) bool
		says  []string
	}{
		{"an older kubelet", func(n *node) {
			n.opts.PodsSocket, n.opts.Pods = podsSocket, (&fakePods{}).query
		}, errdefs.IsNotFound, []string{"there is no " + podsSocket, "Kubernetes 1.37", "kubelet.podsSocket", `remove "resource:acme.com/nic"`, "ns/" + extendedClaim}},
		{"not queried", func(*node) {}, errdefs.IsNotFound, []string{"its socket here"}},
		{"the kubelet is starting", func(n *node) { n.servePods().err = errdefs.ErrUnavailable }, errdefs.IsUnavailable, []string{"Pods API", extendedClaim}},
		{"no mapping", func(n *node) { n.servePods() }, errdefs.IsNotFound, []string{"no request of resource claim"}},
		{"another claim", func(n *node) { n.servePods(request).pod.ExtendedClaim = "pod-extended-resources-other" }, errdefs.IsConflict,
			[]string{podsSocket, socket, "pod-extended-resources-other", extendedClaim}},
		{"no metadata", func(n *node) {
			n.servePods(request)
			n.opts.PluginsDir = pluginsDir
		}, errdefs.IsNotFound, []string{"container-0-request-0", draDriver, pluginsDir, "KEP-5304"}},
		{"metadata of another request", func(n *node) {
			n.servePods(request)
			n.writeMetadata(extendedClaim, "container-1-request-0", "nic-0 "+pciAttribute(devA))
		}, errdefs.IsNotFound, []string{"container-0-request-0"}},
		{"damaged metadata", func(n *node) {
			n.servePods(request)
			n.opts.PluginsDir = pluginsDir
			n.write(metadataPath(extendedClaim, "container-0-request-0"), "{")
		}, errdefs.IsInvalidArgument, []string{metadataPath(extendedClaim, "container-0-request-0")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.allocateClaims("c1: " + extendedClaim + "=nic-0")
			c.setup(n)
			found, err := n.newFinder().Search(t.Context(), newQuery()).Resource("acme.com/nic", "")
			if err == nil || !c.is(err) {
				t.Fatalf("found %+v, %v", found, err)
			}
			for _, says := range c.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("the error does not name %q: %v", says, err)
				}
			}
		})
	}
}

// The Pods API and Pod Resources share one budget, and Pod Resources always get a part of it.
func TestPodsAPIKeepsBudgetOfKubelet(t *testing.T) {
	n := newNode(t)
	k := n.allocate("c1: intel.com/vf=" + devA)
	pods := n.servePods()
	pods.hangs = true
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := n.newFinder().Search(ctx, newQuery())
	if _, err := s.PodObject(); err == nil {
		t.Error("a kubelet that hangs has an answer")
	}
	if pods.left > maxKubeletWait/podsPart {
		t.Errorf("the Pods API has %v", pods.left)
	}
	if _, err := s.Resource(vf, ""); err != nil {
		t.Fatal(err)
	}
	if k.left > maxKubeletWait-maxKubeletWait/podsPart || k.left <= 0 {
		t.Errorf("Pod Resources have %v", k.left)
	}
	if _, err := s.PodObject(); err == nil || pods.calls != 1 {
		t.Errorf("%d calls of the Pods API, %v", pods.calls, err)
	}
}

// An unresponsive directory of the socket is not read.
func TestPodsAPIOfUnresponsiveDirectory(t *testing.T) {
	n := newNode(t)
	pods := n.servePods()
	n.opts.CheckResponsive = func(dir string) error { return fmt.Errorf("%s: %w", dir, errdefs.ErrUnavailable) }
	_, err := n.newFinder().Search(t.Context(), newQuery()).PodObject()
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "/var/lib/kubelet/pods-api: ") || pods.calls != 0 {
		t.Errorf("%d calls, %v", pods.calls, err)
	}
}

// The pod's network-status decides where a file's name is split, as a guess, and nothing else of it is used.
func TestNetworkStatusIsOnlyAGuess(t *testing.T) {
	n := newNode(t)
	pods := n.servePods()
	n.writeCNIFile("team-a/net", "net1", vhostInfo)
	pods.pod.NetworkStatus = `[{"name": "cbr0", "interface": "eth0"}, {"name": "team-a/net", "interface": "net1",
  "device-info": {"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "/etc/shadow"}}},
  {"name": "ns/none", "interface": "net2", "device-info": {"type": "vhost-user", "version": "1.1.0", "vhost-user": {"path": "/etc/shadow"}}}]`
	a := wantOneAttachment(t, must(n.newFinder().findNetworks(t.Context(), newQuery())), nil)
	testkit.Must(t, a.Err)
	if a.Network != "team-a/net" || !a.NetworkGuessed || a.PolicyNetwork() != "team-a-net" || a.Info.VhostUser.Path != "/var/run/vsw/p1/s" ||
		!hasNote(a, "network-status, which a user can write") {
		t.Errorf("%+v, %+v", a, a.Info.VhostUser)
	}
	for _, status := range []string{"{", `[{"name": "../x", "interface": "net1"}]`, `[{"name": "other/net", "interface": "net1"}]`} {
		pods.pod.NetworkStatus = status
		if a := wantOneAttachment(t, must(n.newFinder().findNetworks(t.Context(), newQuery())), nil); a.Network != "team-a-net" {
			t.Errorf("%s: %+v", status, a)
		}
	}
}
