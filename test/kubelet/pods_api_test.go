// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	podresources "github.com/jackfield/jackfield/internal/source/kubelet"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
	"github.com/jackfield/jackfield/test/kubelet"
)

// The client decodes the fields that it needs from Kubernetes' own encoding of a pod.
func TestClientDecodesPodsOfKubernetes(t *testing.T) {
	dir := t.TempDir()
	s, err := kubelet.StartPodsUnder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	root, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	const statusKey = "k8s.v1.cni.cncf.io/network-status"
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "u1", Generation: 7, GenerateName: "po", ResourceVersion: "9",
			Labels: map[string]string{"app": "router", "empty": ""}, Annotations: map[string]string{statusKey: "[]", "other": "x"},
			CreationTimestamp: metav1.Now(), Finalizers: []string{"f"}},
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, PodIPs: []corev1.PodIP{{IP: "192.0.2.1"}},
			ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "pod-extended-resources-x",
				RequestMappings: []corev1.ContainerExtendedResourceRequest{
					{ContainerName: "c", ResourceName: "acme.com/nic", RequestName: "container-0-request-0"}}}}}
	s.SetPods(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "other", UID: "u0"}}, pod)
	want := &allocation.Pod{UID: "u1", Labels: pod.Labels, NetworkStatus: "[]", ExtendedClaim: "pod-extended-resources-x",
		Extended: []allocation.ExtendedRequest{{Container: "c", Resource: "acme.com/nic", Request: "container-0-request-0"}}}
	for _, uid := range []string{"u1", ""} {
		got, err := podresources.QueryPodObject(t.Context(), root, kubelet.PodsSocketPath, "ns", "pod", uid)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with UID %q: %s", uid, diff)
		}
	}
	if _, err := podresources.QueryPodObject(t.Context(), root, kubelet.PodsSocketPath, "ns", "pod", "u2"); !errdefs.IsNotFound(err) {
		t.Errorf("an unknown UID: %v", err)
	}
	s.SetStarting(true)
	if _, err := podresources.QueryPodObject(t.Context(), root, kubelet.PodsSocketPath, "ns", "pod", "u1"); !errdefs.IsUnavailable(err) {
		t.Errorf("a kubelet that starts: %v", err)
	}
	if n := s.Calls(); n != 4 {
		t.Errorf("%d calls", n)
	}
}
