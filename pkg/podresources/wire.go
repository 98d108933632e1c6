// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"bytes"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	// maxAnswer bounds a message, in bytes; kubectl and the kubelet's own tests use
	// the same 16 MiB.
	maxAnswer = 16 << 20
	// maxPods bounds the pods of a List.
	maxPods = 1 << 16
	// maxPod bounds one pod's part of an answer, in bytes. Decoding may take eighty
	// times that in memory, when the part is made of empty messages.
	maxPod = 256 << 10
)

// rawAnswer is an answer as it came. Decoding a whole List costs memory many times
// its size, for pods nobody asked about; only the pod in question is decoded.
type rawAnswer struct{ b []byte }

// codec sends protobuf messages and keeps answers raw.
type codec struct{}

var _ encoding.CodecV2 = codec{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("marshal %T: not a protobuf message: %w", v, errdefs.ErrInternal)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	raw, ok := v.(*rawAnswer)
	if !ok {
		return fmt.Errorf("unmarshal into %T: not a raw answer: %w", v, errdefs.ErrInternal)
	}
	raw.b = data.Materialize()
	return nil
}

// Field numbers of the API.
const (
	fieldPodResources = 1 // of ListPodResourcesResponse and GetPodResourcesResponse
	fieldPodName      = 1 // of PodResources
	fieldPodNamespace = 2
)

// got decodes the answer of Get. size is that of the pod's part, in bytes.
func (q question) got(b []byte) (a Allocation, size int, err error) {
	var mine []byte
	err = q.eachPod(b, func(pod []byte) error {
		mine = pod
		return nil
	}, 1)
	if err != nil {
		return Allocation{}, 0, err
	}
	if mine == nil {
		return Allocation{}, 0, q.bad(errdefs.ErrInvalidArgument, "pod_resources", "it is missing")
	}
	a, err = q.decode(mine, "pod_resources")
	return a, len(mine), err
}

// listed finds the pod in the answer of List; found is false when it is not there.
// What is said about other pods is passed over, right or wrong.
func (q question) listed(b []byte) (a Allocation, size int, found bool, err error) {
	var mine []byte
	index, at := -1, 0
	err = q.eachPod(b, func(pod []byte) error {
		index++
		name, namespace, ok := identity(pod)
		if !ok || string(name) != q.key.Name || string(namespace) != q.key.Namespace {
			return nil
		}
		if found && !bytes.Equal(pod, mine) {
			return q.bad(errdefs.ErrConflict, fmt.Sprintf("pod_resources[%d]", index),
				"the pod is listed already, as item %d, with other devices", at)
		}
		if !found {
			mine, at, found = pod, index, true
		}
		return nil
	}, maxPods)
	if err != nil || !found {
		return Allocation{}, 0, false, err
	}
	a, err = q.decode(mine, fmt.Sprintf("pod_resources[%d]", at))
	return a, len(mine), true, err
}

// eachPod calls f for each pod_resources in an answer, at most max of them.
func (q question) eachPod(b []byte, f func([]byte) error, max int) error {
	count := 0
	for rest := b; len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return q.malformed(b, rest, n)
		}
		value := rest[n:]
		size := protowire.ConsumeFieldValue(num, typ, value)
		if size < 0 {
			return q.malformed(b, value, size)
		}
		rest = value[size:]
		if num != fieldPodResources {
			continue // a field of a later version
		}
		if typ != protowire.BytesType {
			return q.bad(errdefs.ErrInvalidArgument, "pod_resources", "wire type %d, not a message", typ)
		}
		if count++; count > max {
			return q.bad(errdefs.ErrInvalidArgument, "pod_resources", "it is there more than %d times", max)
		}
		pod, _ := protowire.ConsumeBytes(value)
		if err := f(pod); err != nil {
			return err
		}
	}
	return nil
}

func (q question) malformed(b, rest []byte, code int) error {
	return q.bad(errdefs.ErrInvalidArgument, fmt.Sprintf("byte %d of %d", len(b)-len(rest), len(b)), "not protobuf: %v", protowire.ParseError(code))
}

// identity is a pod's name and namespace, without decoding the rest. As in
// protobuf, of a field that is there twice the last counts.
func identity(pod []byte) (name, namespace []byte, ok bool) {
	for len(pod) > 0 {
		num, typ, n := protowire.ConsumeTag(pod)
		if n < 0 {
			return nil, nil, false
		}
		pod = pod[n:]
		size := protowire.ConsumeFieldValue(num, typ, pod)
		if size < 0 {
			return nil, nil, false
		}
		if typ == protowire.BytesType && (num == fieldPodName || num == fieldPodNamespace) {
			value, _ := protowire.ConsumeBytes(pod)
			if num == fieldPodName {
				name = value
			} else {
				namespace = value
			}
		}
		pod = pod[size:]
	}
	return name, namespace, true
}

func (q question) decode(b []byte, at string) (Allocation, error) {
	if len(b) > maxPod {
		return Allocation{}, q.bad(errdefs.ErrInvalidArgument, at, "it has %d bytes, more than %d", len(b), maxPod)
	}
	var pod v1.PodResources
	if err := proto.Unmarshal(b, &pod); err != nil {
		return Allocation{}, q.bad(errdefs.ErrInvalidArgument, at, "not protobuf: %v", err)
	}
	return q.allocation(&pod, at)
}
