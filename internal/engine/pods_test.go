// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

// useKubelet replaces the engine by one with a kubelet, whose Pods API is the pod; nil for an older kubelet.
func (h *host) useKubelet(rules string, devices allocation.Allocation, pod *allocation.Pod) {
	h.t.Helper()
	root, err := hostfs.New(h.dir)
	testkit.Must(h.t, err)
	cfg, err := config.Parse([]byte(rules), "/etc/jackfield/config.yaml")
	testkit.Must(h.t, err)
	h.write(cfg.Kubelet.PodResourcesSocket, "")
	if os.Remove(root.Path(cfg.Kubelet.PodsSocket)); pod != nil {
		h.write(cfg.Kubelet.PodsSocket, "")
	}
	h.e, err = New(root, cfg, Options{
		Kubelet: func(context.Context, hostfs.Root, string, string, string) (allocation.Allocation, error) {
			return devices, nil
		},
		Pods: func(_ context.Context, _ hostfs.Root, _, _, _, uid string) (*allocation.Pod, error) {
			if uid != "u1" {
				return nil, fmt.Errorf("pod %q: %w", uid, errdefs.ErrNotFound)
			}
			return pod, nil
		}})
	testkit.Must(h.t, err)
	e := h.e
	h.t.Cleanup(func() { testkit.Must(h.t, e.Close()) })
}

// A rule that selects pods by labels sees the labels that the pod has now, if the kubelet serves them.
func TestRulesSelectByPresentLabels(t *testing.T) {
	const rules = `policy: {rules: [{name: tier, for: {podLabels: {tier: fast}}, allow: {cdi: ["vendor.com/net=*"]}}]}`
	for _, c := range []struct {
		name    string
		created map[string]string
		unknown bool
		live    *allocation.Pod
		granted bool
	}{
		{"added since", nil, false, &allocation.Pod{Labels: map[string]string{"tier": "fast"}}, true},
		{"removed since", map[string]string{"tier": "fast"}, false, &allocation.Pod{}, false},
		{"unknown to the adapter", nil, true, &allocation.Pod{Labels: map[string]string{"tier": "fast"}}, true},
		{"an older kubelet", map[string]string{"tier": "fast"}, false, nil, true},
		{"an older kubelet, and unknown", nil, true, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, "enforce")
			h.useKubelet(rules, nil, c.live)
			r := newRequest("vendor.com/net=a")
			r.PodUID, r.Labels, r.LabelsUnknown = "u1", c.created, c.unknown
			_, err := h.e.Resolve(t.Context(), r)
			if (err == nil) != c.granted || err != nil && !errdefs.IsPermissionDenied(err) {
				t.Errorf("granted is %v, want %v: %v", err == nil, c.granted, err)
			}
		})
	}
}

// An extended resource of a DRA driver that the annotation requests is delivered once, although the
// device is also discovered by its metadata.
func TestExtendedResourceIsDeliveredOnce(t *testing.T) {
	h := newHost(t, "enforce")
	const claim = "p-extended-resources-x7k2p"
	const file = "/var/lib/kubelet/plugins/d.example.com/dra-device-metadata/ns_" + claim + "/container-0-request-0/metadata.json"
	metadata := func(attributes string) {
		h.write(file, `{"kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/v1beta1", "metadata": {"name": "`+claim+`", "namespace": "ns"},
 "requests": [{"name": "container-0-request-0", "devices": [{"driver": "d.example.com", "pool": "node", "name": "nic-0", "attributes": {`+attributes+`}}]}]}`)
	}
	devices := allocation.Allocation{{Name: "c", Claims: []allocation.ClaimDevice{
		{Namespace: "ns", Claim: claim, Driver: "d.example.com", Pool: "node", Device: "nic-0"}}}}
	pod := &allocation.Pod{UID: "u1", ExtendedClaim: claim, Extended: []allocation.ExtendedRequest{
		{Container: "c", Resource: "acme.com/nic", Request: "container-0-request-0"}}}
	request := newRequest("resource:acme.com/nic")
	request.PodUID = "u1"
	request.Have.Mounts = []edit.Mount{{Type: "bind", Source: h.dir + file,
		Destination: "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/" + claim + "/container-0-request-0/d.example.com-metadata.json"}}
	h.listen("/run/vsw/p0/s")
	config := strings.NewReplacer("MODE", "enforce", "dialects:", "dialects:\n  - {match: {driver: d.example.com}, creator: host, path: host}").Replace(rules)
	for name, attributes := range map[string]string{
		"without an address": ``, "a socket": `"vhost-user-path": {"string": "/var/run/vsw/p0/s"}`} {
		metadata(attributes)
		h.useKubelet(config, devices, pod)
		p := h.resolve(request)
		if got := planOutcomes(p); len(p.Items) != 1 || got[`resource "acme.com/nic" device "nic-0"`] != Injected {
			t.Errorf("%s: the outcomes are %v", name, got)
		}
		view := string(p.Staging.Files[0].Data)
		if n := strings.Count(view, `"resource": "acme.com/nic"`); n != 1 || !strings.Contains(view, `"name": "`+claim+`/container-0-request-0"`) {
			t.Errorf("%s: devices.json has %s", name, view)
		}
	}
	h.useKubelet(config, devices, nil)
	h.wantRefusal(request, errdefs.IsNotFound, "Pods API", "pods-api.sock", "resource:acme.com/nic")
}
