// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

const podsSocket = "/var/lib/kubelet/pods-api/pods-api.sock"

// fakePods serves the Pods API with encoded pods, whichever pod the client requests.
type fakePods struct {
	v1alpha1.UnimplementedPodsServer
	pods  [][]byte
	err   error
	delay time.Duration
}

func (f *fakePods) wait(ctx context.Context) error {
	select {
	case <-time.After(f.delay):
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakePods) GetPod(ctx context.Context, _ *v1alpha1.GetPodRequest) (*v1alpha1.GetPodResponse, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return &v1alpha1.GetPodResponse{Pod: f.pods[0]}, nil
}

func (f *fakePods) ListPods(ctx context.Context, _ *v1alpha1.ListPodsRequest) (*v1alpha1.ListPodsResponse, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return &v1alpha1.ListPodsResponse{Pods: f.pods}, nil
}

func (f *fakePods) start(t testing.TB) hostfs.Root {
	t.Helper()
	root := newRoot(t)
	l := listenAt(t, root, podsSocket)
	srv := grpc.NewServer(grpc.MaxSendMsgSize(1 << 30))
	v1alpha1.RegisterPodsServer(srv, f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-served
	})
	return root
}

func queryPods(t testing.TB, root hostfs.Root, uid string) (*allocation.Pod, error) {
	t.Helper()
	return QueryPodObject(t.Context(), root, podsSocket, "ns", "pod", uid)
}

// field encodes a field of a message, whose value is a text or the fields of a message.
func field(n protowire.Number, values ...string) string {
	return string(protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), []byte(strings.Join(values, ""))))
}

// encodePod encodes a pod of core/v1 with more fields of its metadata.
func encodePod(namespace, name, uid string, meta ...string) string {
	number := string(protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 3)) // metadata.generation
	return field(podMetadata, field(metaName, name), field(2, "generated"), field(metaNamespace, namespace), field(metaUID, uid),
		number, strings.Join(meta, ""))
}

func entry(n protowire.Number, key, value string) string {
	return field(n, field(1, key), field(2, value))
}

func mapping(container, resource, request string) string {
	return field(extendedMappings, field(mappingContainer, container), field(mappingResource, resource), field(mappingRequest, request))
}

func extended(fields ...string) string {
	return field(podStatus, field(1, "Running"), field(statusExtendedClaim, fields...))
}

func TestPodObjectHasFieldsThatOtherSourcesLack(t *testing.T) {
	ours := encodePod("ns", "pod", "u1", entry(metaLabels, "app", "router"), entry(metaLabels, "tier", ""),
		entry(metaAnnotations, "example.com/x", "\xff"), entry(metaAnnotations, networkStatusAnnotation, `[{"name":"ns/a"}]`)) +
		field(podSpec, specOf("other", "acme.com/nic")) + extended(field(extendedClaimName, "pod-extended-resources-x"),
		mapping("c", "acme.com/nic", "container-0-request-0"), mapping("c", "acme.com/nic", "container-0-request-1"),
		mapping("d", "acme.com/gpu", "container-1-request-0"))
	want := &allocation.Pod{UID: "u1", Labels: map[string]string{"app": "router", "tier": ""}, NetworkStatus: `[{"name":"ns/a"}]`,
		ExtendedClaim: "pod-extended-resources-x", Extended: []allocation.ExtendedRequest{
			{Container: "c", Resource: "acme.com/nic", Request: "container-0-request-0"},
			{Container: "c", Resource: "acme.com/nic", Request: "container-0-request-1"},
			{Container: "d", Resource: "acme.com/gpu", Request: "container-1-request-0"}}}
	f := &fakePods{pods: [][]byte{[]byte(ours), []byte(encodePod("ns", "pod2", "u2")), []byte(encodePod("other", "pod", "u3"))}}
	root := f.start(t)
	for _, uid := range []string{"u1", ""} {
		got, err := queryPods(t, root, uid)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with UID %q: %s", uid, diff)
		}
	}
	if got := want.Requests("c", "acme.com/nic"); len(got) != 2 || want.Resource("d", "container-1-request-0") != "acme.com/gpu" ||
		want.Resource("c", "container-1-request-0") != "" {
		t.Errorf("requests %q", got)
	}
}

// specOf encodes a container of a pod's spec with its requests.
func specOf(name string, resources ...string) string {
	var requests []string
	for _, r := range resources {
		requests = append(requests, field(resourcesRequests, field(1, r), field(2, field(1, "1"))))
	}
	return field(specContainers, field(containerName, name), field(2, "image"), field(containerResources, requests...))
}

// Kubelets of 1.37 leave the scheduler's mapping out, but its names follow from the spec.
func TestRequestsOfExtendedResourcesFollowFromSpec(t *testing.T) {
	initContainer := field(specInitContainers, field(containerName, "init"))
	pod := encodePod("ns", "pod", "u1") + field(podSpec, specOf("a", "memory", "cpu", "acme.com/nic", "acme.com/gpu"), field(4, "Never"), initContainer, specOf("b", "acme.com/nic"))
	got, err := queryPods(t, (&fakePods{pods: [][]byte{[]byte(pod)}}).start(t), "u1")
	if err != nil {
		t.Fatal(err)
	}
	want := []allocation.ExtendedRequest{{Container: "a", Resource: "acme.com/gpu", Request: "container-1-request-0"},
		{Container: "a", Resource: "acme.com/nic", Request: "container-1-request-1"}, {Container: "b", Resource: "acme.com/nic", Request: "container-2-request-0"}}
	if diff := cmp.Diff(want, got.Extended); diff != "" || got.ExtendedClaim != "" {
		t.Error(diff)
	}
}

// invalidPods are answers of the Pods API that the client must refuse.
func invalidPods() map[string]struct {
	pods     []string
	sentinel error
	says     string
} {
	var labels, mappings []string
	for i := range maxPodItems + 1 {
		labels = append(labels, entry(metaLabels, fmt.Sprint("k", i), ""))
		mappings = append(mappings, mapping("c", "r", fmt.Sprint("q", i)))
	}
	claim := field(extendedClaimName, "claim")
	ours := encodePod("ns", "pod", "u1")
	type invalid = struct {
		pods     []string
		sentinel error
		says     string
	}
	return map[string]invalid{
		"another pod":            {[]string{encodePod("ns", "victim", "u1")}, errdefs.ErrNotFound, "does not list the pod"},
		"another namespace":      {[]string{encodePod("victim", "pod", "u1")}, errdefs.ErrNotFound, "does not list the pod"},
		"another UID":            {[]string{encodePod("ns", "pod", "u2")}, errdefs.ErrConflict, `"u2"`},
		"no UID":                 {[]string{encodePod("ns", "pod", "")}, errdefs.ErrInvalidArgument, "metadata.uid"},
		"no name":                {[]string{field(podStatus, "")}, errdefs.ErrInvalidArgument, "no name"},
		"empty":                  {[]string{""}, errdefs.ErrInvalidArgument, "no name"},
		"garbage":                {[]string{"\xff\xfe\xfdgarbage"}, errdefs.ErrInvalidArgument, "not a valid message"},
		"truncated":              {[]string{ours[:len(ours)-2]}, errdefs.ErrInvalidArgument, "not a valid message"},
		"truncated metadata":     {[]string{ours + field(podMetadata, field(metaUID, "u1")[:2])}, errdefs.ErrInvalidArgument, "metadata: it is not a valid message"},
		"UID with a newline":     {[]string{encodePod("ns", "pod", "u\n1")}, errdefs.ErrInvalidArgument, "metadata.uid"},
		"label with an escape":   {[]string{encodePod("ns", "pod", "u1", entry(metaLabels, "a", "\x1b[31m"))}, errdefs.ErrInvalidArgument, "metadata.labels"},
		"label without a key":    {[]string{encodePod("ns", "pod", "u1", entry(metaLabels, "", "a"))}, errdefs.ErrInvalidArgument, "metadata.labels"},
		"long label":             {[]string{encodePod("ns", "pod", "u1", entry(metaLabels, "a", strings.Repeat("x", maxText+1)))}, errdefs.ErrInvalidArgument, "metadata.labels"},
		"too many labels":        {[]string{encodePod("ns", "pod", "u1", labels...)}, errdefs.ErrInvalidArgument, "more than 1024 items"},
		"long network-status":    {[]string{encodePod("ns", "pod", "u1", entry(metaAnnotations, networkStatusAnnotation, strings.Repeat("x", maxAnnotations+1)))}, errdefs.ErrInvalidArgument, networkStatusAnnotation},
		"network-status's bytes": {[]string{encodePod("ns", "pod", "u1", entry(metaAnnotations, networkStatusAnnotation, "\xff"))}, errdefs.ErrInvalidArgument, networkStatusAnnotation},
		"claim's name":           {[]string{ours + extended(field(extendedClaimName, "../x\x00"))}, errdefs.ErrInvalidArgument, "resourceClaimName"},
		"container without name": {[]string{ours + field(podSpec, specOf(""))}, errdefs.ErrInvalidArgument, "spec.containers[0].name"},
		"request's name":         {[]string{ours + field(podSpec, specOf("c", "a\x1b"))}, errdefs.ErrInvalidArgument, "spec.containers[0].resources.requests"},
		"truncated spec":         {[]string{ours + field(podSpec, specOf("c", "a")[:9])}, errdefs.ErrInvalidArgument, "spec: it is not a valid message"},
		"no claim":               {[]string{ours + extended(mapping("c", "r", "q"))}, errdefs.ErrInvalidArgument, "resourceClaimName"},
		"mapping without names":  {[]string{ours + extended(claim, mapping("", "r", "q"))}, errdefs.ErrInvalidArgument, "requestMappings[0].containerName"},
		"mapping twice":          {[]string{ours + extended(claim, mapping("c", "r", "q"), mapping("c", "r", "q"))}, errdefs.ErrConflict, "requestMappings[1]"},
		"too many mappings":      {[]string{ours + extended(append(mappings, claim)...)}, errdefs.ErrInvalidArgument, "more than 1024 items"},
		"too large":              {[]string{ours + field(2, strings.Repeat("x", maxAnswer))}, errdefs.ErrResourceExhausted, "larger than 16 MiB"},
	}
}

func TestInvalidPodObjectIsRefused(t *testing.T) {
	for name, c := range invalidPods() {
		t.Run(name, func(t *testing.T) {
			f := &fakePods{}
			for _, p := range c.pods {
				f.pods = append(f.pods, []byte(p))
			}
			_, err := queryPods(t, f.start(t), "u1")
			wantErr(t, err, c.sentinel, c.says, podsSocket, `its object of pod "ns/pod"`)
			if len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x00\x1b\n") {
				t.Errorf("%d bytes: %.200q", len(err.Error()), err)
			}
			var d *diag.Diagnostic
			if !errors.As(err, &d) || d.File != podsSocket {
				t.Errorf("%#v", err)
			}
		})
	}
}

// Without a UID, an old pod of the same name makes the answer ambiguous.
func TestTwoPodsOfOneName(t *testing.T) {
	f := &fakePods{pods: [][]byte{[]byte(encodePod("ns", "pod", "u1")), []byte(encodePod("ns", "pod", "u2"))}}
	_, err := queryPods(t, f.start(t), "")
	wantErr(t, err, errdefs.ErrConflict, `"u1"`, `"u2"`)
}

func TestPodsAPIIsAbsentOrFails(t *testing.T) {
	_, err := queryPods(t, newRoot(t), "u1")
	wantErr(t, err, errdefs.ErrUnavailable, podsSocket, "is the kubelet running, and its pods-api directory mounted here?")
	for _, c := range []struct {
		err      error
		sentinel error
		says     string
	}{
		{status.Error(codes.FailedPrecondition, "Kubelet is initializing"), errdefs.ErrUnavailable, "the kubelet is starting"},
		{status.Error(codes.NotFound, "pod with UID u1 not found"), errdefs.ErrNotFound, "does not know the pod"},
		{status.Error(codes.Unimplemented, "unknown service"), errdefs.ErrUnknown, "unknown service"},
		{status.Error(codes.Internal, "\x1b[31m"), errdefs.ErrUnknown, "refuses"},
	} {
		_, err := queryPods(t, (&fakePods{err: c.err}).start(t), "u1")
		wantErr(t, err, c.sentinel, c.says)
		if strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = QueryPodObject(ctx, (&fakePods{delay: time.Hour}).start(t), podsSocket, "ns", "pod", "u1")
	wantErr(t, err, context.DeadlineExceeded, filepath.Base(podsSocket))
	_, err = QueryPodObject(t.Context(), newRoot(t), podsSocket, "", "pod", "u1")
	wantErr(t, err, errdefs.ErrInvalidArgument)
}

// FuzzDecodePod checks that any answer gives a diagnostic or the pod, with names that are printable.
func FuzzDecodePod(f *testing.F) {
	for _, c := range invalidPods() {
		if len(c.pods[0]) < 4096 {
			f.Add([]byte(c.pods[0]))
		}
	}
	q := query{wanted: "its object of pod", namespace: "ns", name: "pod", socket: podsSocket}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := q.selectPod([][]byte{b}, "")
		if err != nil {
			var d *diag.Diagnostic
			if !errors.As(err, &d) || d.File != podsSocket || d.Unwrap() == nil {
				t.Errorf("%#v", err)
			}
			return
		}
		for _, r := range p.Extended {
			if r.Container == "" || r.Resource == "" || r.Request == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}
