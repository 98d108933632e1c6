// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	podresources "github.com/jackfield/jackfield/internal/source/kubelet"
	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/kubelet"
)

// extendedClass creates a DeviceClass of a driver's devices that pods request as an extended resource. An
// expression in CEL selects the devices.
func (k *K) extendedClass(name, resource, expression string) {
	k.t.Helper()
	k.Create(object(map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"extendedResourceName": resource, "selectors": []any{map[string]any{"cel": map[string]any{"expression": expression}}}}}))
	k.t.Cleanup(func() {
		if _, err := k.Cluster.Kubectl(k.ctx, "delete", "deviceclass", name); err != nil {
			k.t.Errorf("clean up: %v", err)
		}
	})
}

// extendedPod returns a pod whose container requests one device of an extended resource, by its limits and by
// Jackfield's annotation.
func extendedPod(namespace, name, resource string) Pod {
	return Pod{Namespace: namespace, Name: name, Annotations: map[string]string{deviceKey + "/container.main": "resource:" + resource},
		Container: map[string]any{"resources": map[string]any{"limits": map[string]any{resource: "1"}}}}
}

// checkNoRequests checks that Jackfield made no request to the API server since the cluster started.
func (k *K) checkNoRequests() {
	k.t.Helper()
	for _, r := range readRequests(k.t, k.auditMark()) {
		if strings.HasPrefix(r.User.Username, "system:serviceaccount:"+cluster.Namespace+":") || strings.Contains(strings.ToLower(r.UserAgent), "jackfield") {
			k.t.Errorf("%q (%s) makes the request %q", r.UserAgent, r.User.Username, r)
		}
	}
}

// extendedElement is an element of devices.json.
type extendedElement struct {
	Name      string
	Jackfield struct {
		Resource string
		Claim    struct{ Name, Request, Driver, Device string }
	}
}

// The scheduler creates a claim for an extended resource of Kubernetes' own DRA test driver. Jackfield finds the device
// of the resource with the kubelet's Pods API, without a request to the API server.
func TestExtendedResourceOfKubernetesTestDriver(t *testing.T) {
	k := Start(t)
	k.runTestDriver()
	const resource = "acme.com/claimed"
	k.extendedClass("extended", resource, fmt.Sprintf("device.driver == %q", testDriver))
	ns := k.Namespace("fast-extended", nil)
	k.RunPod(extendedPod(ns, "app", resource))
	api, err := k.client(cluster.TestClient).CoreV1().Pods(ns).Get(k.ctx, "app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if api.Status.ExtendedResourceClaimStatus == nil {
		t.Fatalf("the pod has no claim for its extended resources: %+v", api.Status)
	}
	claim := api.Status.ExtendedResourceClaimStatus.ResourceClaimName
	const request = "container-0-request-0"
	out := k.Exec(ns, "app", "sh", "-c", "env; cat $JACKFIELD_DEVICES_FILE")
	contains(t, out, "claim_"+strings.ReplaceAll(claim+"_"+request, "-", "_")+"=true", `"resource": "`+resource+`"`)
	_, text, _ := strings.Cut(out, "\n[")
	var list []extendedElement
	if err := json.Unmarshal([]byte("["+text), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	list = slices.DeleteFunc(list, func(d extendedElement) bool { return d.Jackfield.Claim.Name == "" })
	if len(list) != 1 || list[0].Name != claim+"/"+request || list[0].Jackfield.Claim.Driver != testDriver {
		t.Errorf("devices.json has %+v", list)
	}
	contains(t, k.Jackfield("status", ns+"/app"), fmt.Sprintf(`resource %q device %q: injected`, resource, list[0].Jackfield.Claim.Device))

	// The fake of the Pods API returns the same pod as the kubelet.
	fake, err := kubelet.StartPodsUnder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Stop)
	fake.SetPods(api)
	for _, uid := range []string{string(api.UID), ""} {
		want, err := podresources.QueryPodObject(k.ctx, hostfs.Host(), fake.Socket(), ns, "app", uid)
		if err != nil {
			t.Fatal(err)
		}
		got, err := podresources.QueryPodObject(k.ctx, hostfs.Host(), kubelet.PodsSocketPath, ns, "app", uid)
		if err != nil {
			t.Fatal(err)
		}
		// The kubelet leaves the scheduler's mapping out of the status. The requests follow from the spec.
		got.ExtendedClaim = cmp.Or(got.ExtendedClaim, claim)
		if diff := gocmp.Diff(want, got); diff != "" || want.ExtendedClaim != claim {
			t.Errorf("the fake and the kubelet differ: %s", diff)
		}
	}
	k.deleteClaims(ns)
	k.checkNoRequests()
}
