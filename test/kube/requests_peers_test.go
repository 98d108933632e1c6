// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
)

// peerPods is the number of pods with which the requests of other software are counted.
const peerPods = 10

// client returns a client of the API server with a name in the audit log.
func (k *K) client(name string) *kubernetes.Clientset {
	k.t.Helper()
	client, err := k.Client(name)
	if err != nil {
		k.t.Fatal(err)
	}
	return client
}

// expectPerPod checks that each of the requests was made once for each pod, or more often.
func expectPerPod(t *testing.T, found map[string]int, requests ...string) {
	t.Helper()
	for _, name := range requests {
		if found[name] < peerPods {
			t.Errorf("for %d pods, found %d requests %q, which docs/contributing/requests-to-the-api-server.md counts for each pod", peerPods, found[name], name)
		}
	}
}

// vhostDriver is the name of a DRA driver, and of its clients.
const vhostDriver = "vhost.example.com"

// vhostPlugin is a DRA driver with Kubernetes' own library. Like dra-driver-ovsdpdk it writes the device into the
// claim's status when it prepares a claim.
type vhostPlugin struct{ client *kubernetes.Clientset }

func (p vhostPlugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		device := claim.Status.Allocation.Devices.Results[0]
		claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: device.Driver, Pool: device.Pool, Device: device.Device}}
		_, err := p.client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		results[claim.UID] = kubeletplugin.PrepareResult{Err: err, Devices: []kubeletplugin.Device{{Requests: []string{device.Request}, PoolName: device.Pool, DeviceName: device.Device}}}
	}
	return results, nil
}

func (vhostPlugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = nil
	}
	return results, nil
}

func (vhostPlugin) HandleError(context.Context, error, string) {}

func (vhostPlugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// runVhostDriver starts the driver on the node, with devices, until the test ends.
func (k *K) runVhostDriver() {
	k.t.Helper()
	client, data := k.client(vhostDriver), filepath.Join("/var/lib/kubelet/plugins", vhostDriver)
	if err := os.MkdirAll(data, 0o755); err != nil {
		k.t.Fatal(err)
	}
	helper, err := kubeletplugin.Start(klog.NewContext(k.ctx, logr.Discard()), vhostPlugin{client}, kubeletplugin.DriverName(vhostDriver),
		kubeletplugin.KubeClient(client), kubeletplugin.NodeName("node"), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		helper.Stop()
		if _, err := k.Cluster.Kubectl(k.ctx, "delete", "resourceslices", "--field-selector=spec.driver="+vhostDriver); err != nil {
			k.t.Error(err)
		}
	})
	var devices []resourceapi.Device
	for i := range 2 * peerPods { // those of pods that end are in use for a while
		devices = append(devices, resourceapi.Device{Name: fmt.Sprint("port", i)})
	}
	if err := helper.PublishResources(k.ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{"node": {Slices: []resourceslice.Slice{{Devices: devices}}}}}); err != nil {
		k.t.Fatal(err)
	}
}

// The requests that a claim of a DRA driver costs, with the real scheduler, controllers and kubelet.
func TestRequestsThatClaimCosts(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("requests-claims", nil)
	k.Create(object(map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": map[string]any{"name": vhostDriver},
		"spec": map[string]any{"selectors": []any{map[string]any{"cel": map[string]any{"expression": "device.driver == '" + vhostDriver + "'"}}}}}) +
		object(map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": map[string]any{"name": "port", "namespace": ns},
			"spec": map[string]any{"spec": map[string]any{"devices": map[string]any{"requests": []any{
				map[string]any{"name": "port", "exactly": map[string]any{"deviceClassName": vhostDriver}}}}}}}))
	t.Cleanup(func() { k.Kubectl("delete", "deviceclass", vhostDriver) })

	p := Pod{Namespace: ns, Name: "router", Container: map[string]any{"resources": map[string]any{"claims": []any{map[string]any{"name": "port"}}}}}
	spec := p.spec()
	spec["resourceClaims"] = []any{map[string]any{"name": "port", "resourceClaimTemplateName": "port"}}
	all := k.requestsDuring(func() {
		k.runVhostDriver()
		k.comeAndGo(ns, deploymentOf(p, spec, peerPods), peerPods)
		k.Wait("the claims are deleted", func() error {
			left, err := k.Cluster.Kubectl(k.ctx, "--namespace", ns, "get", "resourceclaims", "--output=name")
			if err == nil && left != "" {
				err = fmt.Errorf("left: %s", left)
			}
			return err
		})
	})
	found := count(all, ns)
	logCounts(t, "for each of 10 pods with a claim", found, peerPods)
	node := map[string]int{}
	for _, r := range all {
		if r.UserAgent == vhostDriver && r.ObjectRef.Namespace == "" {
			node[r.String()]++
		}
	}
	logCounts(t, "of the driver for the node", node, 1)
	expectPerPod(t, found,
		"kube-controller-manager create resourceclaims", "kube-controller-manager delete resourceclaims",
		"kube-scheduler update resourceclaims/status",
		"kubelet get resourceclaims",
		vhostDriver+" get resourceclaims", vhostDriver+" update resourceclaims/status")
	if node[vhostDriver+" create resourceslices"] == 0 || node[vhostDriver+" watch resourceslices"] == 0 {
		t.Errorf("the driver made these requests for the node: %v", node)
	}
}

// The requests that Multus and a mutating webhook cost. The webhook is real and answers as
// network-resources-injector does; the requests of Multus 4.3, in its daemon mode, are played, because Multus
// cannot be built here.
func TestRequestsOfWebhookAndMultus(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("requests-multus", map[string]string{"requests": "counted"})
	var calls atomic.Int32
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		calls.Add(1)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(webhook.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	k.Create(object(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": map[string]any{"name": "requests"},
		"webhooks": []any{map[string]any{"name": "requests.example.com", "sideEffects": "None", "admissionReviewVersions": []string{"v1"},
			"clientConfig":      map[string]any{"url": webhook.URL + "/mutate", "caBundle": ca},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"requests": "counted"}},
			"rules":             []any{map[string]any{"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"pods"}}}}}}))
	t.Cleanup(func() { k.Kubectl("delete", "mutatingwebhookconfiguration", "requests") })
	k.Wait("the API server calls the webhook", func() error {
		_, err := k.KubectlInput(k.ctx, Pod{Namespace: ns, Name: "p"}.Manifest(), "create", "--dry-run=server", "--filename=-")
		if err == nil && calls.Load() == 0 {
			err = fmt.Errorf("no call")
		}
		return err
	})
	calls.Store(0)

	multus := k.client("multus-played").CoreV1()
	all := k.requestsDuring(func() {
		k.Create(deployment(Pod{Namespace: ns, Name: "router"}, peerPods))
		k.waitReplicas(ns, "router", peerPods)
		for name := range k.Pods(ns, "") {
			if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				pod, err := multus.Pods(ns).Get(k.ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/network-status": "[]"}
				_, err = multus.Pods(ns).UpdateStatus(k.ctx, pod, metav1.UpdateOptions{})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			for _, network := range []string{"pods", "fast"} {
				_, err := multus.Events(ns).Create(k.ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: name}, Reason: "AddedInterface", Message: network, Type: corev1.EventTypeNormal,
					InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: name}}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		k.Kubectl("--namespace", ns, "scale", "deployment/router", "--replicas=0")
		k.waitReplicas(ns, "router", 0)
	})
	found := count(all, ns)
	logCounts(t, "for each of 10 pods with a webhook and Multus", found, peerPods)
	if n := calls.Load(); n < peerPods {
		t.Errorf("the API server called the webhook %d times for %d pods", n, peerPods)
	}
	expectPerPod(t, found, "multus-played get pods", "multus-played update pods/status", "multus-played create events")
}
