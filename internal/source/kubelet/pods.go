// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	v1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

// This file is a client of the Pods API (KEP-4188), which kubelets from 1.37 serve on a socket of its
// own. A pod arrives as the encoding of a core/v1 Pod. Only the fields of [allocation.Pod] are decoded,
// because the package with the type doubles the memory of an idle process.

const (
	maxPodItems    = 1024      // labels, and requests of the claim
	maxAnnotations = 256 << 10 // bytes, the limit of Kubernetes for all annotations of a pod

	networkStatusAnnotation = "k8s.v1.cni.cncf.io/network-status"
)

// Fields of core/v1, as k8s.io/api/core/v1/generated.proto numbers them.
const (
	podMetadata protowire.Number = 1
	podSpec     protowire.Number = 2
	podStatus   protowire.Number = 3

	specContainers     protowire.Number = 2
	specInitContainers protowire.Number = 20

	containerName      protowire.Number = 1
	containerResources protowire.Number = 8

	resourcesRequests protowire.Number = 2

	metaName        protowire.Number = 1
	metaNamespace   protowire.Number = 3
	metaUID         protowire.Number = 5
	metaLabels      protowire.Number = 11
	metaAnnotations protowire.Number = 12

	statusExtendedClaim protowire.Number = 18

	extendedMappings  protowire.Number = 1
	extendedClaimName protowire.Number = 2

	mappingContainer protowire.Number = 1
	mappingResource  protowire.Number = 2
	mappingRequest   protowire.Number = 3
)

// QueryPodObject returns the kubelet's own object of a pod. Without a UID the pod's names select it.
// Errors and deadlines are those of [QueryPod]. In addition, a kubelet that is starting is
// errdefs.ErrUnavailable, and another pod of the same name is errdefs.ErrConflict.
func QueryPodObject(ctx context.Context, host hostfs.Root, socket, namespace, name, uid string) (*allocation.Pod,
	error) {
	q := query{wanted: "its object of pod", namespace: namespace, name: name, socket: socket}
	if err := q.check(); err != nil {
		return nil, err
	}
	var pods [][]byte
	err := q.call(ctx, host, func(conn *grpc.ClientConn) error {
		client := v1alpha1.NewPodsClient(conn)
		if uid != "" {
			answer, err := client.GetPod(ctx, &v1alpha1.GetPodRequest{PodUID: uid})
			pods = [][]byte{answer.GetPod()}
			return err
		}
		answer, err := client.ListPods(ctx, &v1alpha1.ListPodsRequest{})
		pods = answer.GetPods()
		return err
	})
	if err != nil {
		return nil, err
	}
	return q.selectPod(pods, uid)
}

// selectPod decodes the pods of an answer and returns the pod of the query.
func (q query) selectPod(pods [][]byte, uid string) (found *allocation.Pod, err error) {
	for _, data := range pods {
		p, err := q.decodePod(data)
		// A pod that was re-created under its name is another pod: its devices are not those of the container.
		switch {
		case err != nil:
			return nil, err
		case p == nil: // another pod of the node
		case uid != "" && p.UID != uid:
			return nil, q.newError(errdefs.ErrConflict, "", "the kubelet returned a pod with the UID %.100q in place of %q",
				p.UID, uid)
		case found != nil:
			return nil, q.newError(errdefs.ErrConflict, "repeat the command when the old pod has ended",
				"the kubelet has two pods of this name, with the UIDs %q and %q", found.UID, p.UID)
		default:
			found = p
		}
	}
	if found == nil {
		return nil, q.newError(errdefs.ErrNotFound, "", "the kubelet does not list the pod")
	}
	return found, nil
}

// podDecoder decodes a pod, and keeps the first fault.
type podDecoder struct {
	reader
	pod              allocation.Pod
	namespace, name  string
	init, containers []podContainer
}

// podContainer is a container of the pod's spec, with the names of the resources that it requests.
type podContainer struct {
	name      string
	resources []string
}

// decodePod decodes a pod. It returns nil for a pod with other names than the query's.
func (q query) decodePod(data []byte) (*allocation.Pod, error) {
	d := podDecoder{reader: reader{query: q}}
	d.eachField(data, "", func(n protowire.Number, value []byte) {
		switch n {
		case podMetadata:
			d.eachField(value, "metadata", d.readMetadata)
		case podSpec:
			d.eachField(value, "spec", d.readSpec)
		case podStatus:
			d.eachField(value, "status", func(n protowire.Number, value []byte) {
				if n == statusExtendedClaim {
					d.eachField(value, extendedField, d.readExtendedClaim)
				}
			})
		}
	})
	if d.namespace != q.namespace || d.name != q.name {
		if d.namespace == "" || d.name == "" {
			d.addFault(errdefs.ErrInvalidArgument, "metadata", "the pod has no name")
			return nil, d.fault
		}
		return nil, nil
	}
	d.checkText(d.pod.UID, "metadata.uid")
	if d.pod.ExtendedClaim == "" && len(d.pod.Extended) > 0 {
		d.addFault(errdefs.ErrInvalidArgument, extendedField+".resourceClaimName", "it is empty")
	}
	if d.fault != nil {
		return nil, d.fault
	}
	if d.pod.ExtendedClaim == "" {
		d.pod.Extended = expectedRequests(append(d.init, d.containers...))
	}
	return &d.pod, nil
}

const extendedField = "status.extendedResourceClaimStatus"

// eachField calls f for each field of a message that has a length. Fields of other types are skipped.
func (d *podDecoder) eachField(data []byte, field string, f func(n protowire.Number, value []byte)) {
	for len(data) > 0 && d.fault == nil {
		n, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			d.addFault(errdefs.ErrInvalidArgument, field, "it is not a valid message: %v", protowire.ParseError(size))
			return
		}
		data = data[size:]
		if size = protowire.ConsumeFieldValue(n, kind, data); size < 0 {
			d.addFault(errdefs.ErrInvalidArgument, field, "it is not a valid message: %v", protowire.ParseError(size))
			return
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data)
			f(n, value)
		}
		data = data[size:]
	}
}

// expectedRequests returns the requests that the scheduler makes for the extended resources of a pod's
// containers. It names a request container-N-request-M: N is the container's index in the init containers
// followed by the others, and M the resource's index in the sorted resources that the container requests.
// Kubelets of 1.37 leave the scheduler's own mapping out of the status that their Pods API returns.
func expectedRequests(containers []podContainer) (all []allocation.ExtendedRequest) {
	for n, c := range containers {
		slices.Sort(c.resources)
		for m, resource := range c.resources {
			if strings.Contains(resource, "/") {
				all = append(all, allocation.ExtendedRequest{Container: c.name, Resource: resource,
					Request: fmt.Sprintf("container-%d-request-%d", n, m)})
			}
		}
	}
	return all
}

// readSpec reads a field of the pod's spec.
func (d *podDecoder) readSpec(n protowire.Number, value []byte) {
	list, listField := &d.containers, "spec.containers"
	switch n {
	case specInitContainers:
		list, listField = &d.init, "spec.initContainers"
	case specContainers:
	default:
		return
	}
	field := fmt.Sprintf("%s[%d]", listField, len(*list))
	var c podContainer
	d.eachField(value, field, func(n protowire.Number, value []byte) {
		switch n {
		case containerName:
			c.name = string(value)
		case containerResources:
			d.eachField(value, field+".resources", func(n protowire.Number, value []byte) {
				if n == resourcesRequests {
					resource, _ := d.readEntry(value, field+".resources.requests")
					d.checkText(resource, field+".resources.requests")
					c.resources = append(c.resources, resource)
					d.checkCount(len(c.resources), field+".resources.requests")
				}
			})
		}
	})
	d.checkText(c.name, field+".name")
	*list = append(*list, c)
	d.checkCount(len(*list), listField)
}

// readMetadata reads a field of the pod's metadata.
func (d *podDecoder) readMetadata(n protowire.Number, value []byte) {
	// All other fields of the metadata are skipped.
	switch n {
	case metaName:
		d.name = string(value)
	case metaNamespace:
		d.namespace = string(value)
	case metaUID:
		d.pod.UID = string(value)
	case metaLabels:
		key, text := d.readEntry(value, "metadata.labels")
		d.checkText(key, "metadata.labels")
		if text != "" {
			d.checkText(text, fmt.Sprintf("metadata.labels[%.100q]", key))
		}
		if d.pod.Labels == nil {
			d.pod.Labels = map[string]string{}
		}
		d.pod.Labels[key] = text
		d.checkCount(len(d.pod.Labels), "metadata.labels")
	case metaAnnotations:
		key, text := d.readEntry(value, "metadata.annotations")
		if key != networkStatusAnnotation {
			return
		}
		if len(text) > maxAnnotations || !utf8.ValidString(text) {
			d.addFault(errdefs.ErrInvalidArgument, "metadata.annotations["+key+"]",
				"it is not UTF-8 of at most %d bytes", maxAnnotations)
			return
		}
		d.pod.NetworkStatus = text
	}
}

// readEntry reads an entry of a map of strings.
func (d *podDecoder) readEntry(data []byte, field string) (key, value string) {
	d.eachField(data, field, func(n protowire.Number, text []byte) {
		switch n {
		case 1:
			key = string(text)
		case 2:
			value = string(text)
		}
	})
	return key, value
}

// readExtendedClaim reads a field of the status of the claim for extended resources.
func (d *podDecoder) readExtendedClaim(n protowire.Number, value []byte) {
	switch n {
	case extendedClaimName:
		d.pod.ExtendedClaim = string(value)
		d.checkText(d.pod.ExtendedClaim, extendedField+".resourceClaimName")
	case extendedMappings:
		field := fmt.Sprintf("%s.requestMappings[%d]", extendedField, len(d.pod.Extended))
		var r allocation.ExtendedRequest
		d.eachField(value, field, func(n protowire.Number, text []byte) {
			switch n {
			case mappingContainer:
				r.Container = string(text)
			case mappingResource:
				r.Resource = string(text)
			case mappingRequest:
				r.Request = string(text)
			}
		})
		d.checkText(r.Container, field+".containerName")
		d.checkText(r.Resource, field+".resourceName")
		d.checkText(r.Request, field+".requestName")
		if slices.Contains(d.pod.Extended, r) {
			d.addFault(errdefs.ErrConflict, field, "the mapping is listed twice")
		}
		d.pod.Extended = append(d.pod.Extended, r)
		d.checkCount(len(d.pod.Extended), extendedField+".requestMappings")
	}
}

func (d *podDecoder) checkCount(n int, field string) {
	if n > maxPodItems {
		d.addFault(errdefs.ErrInvalidArgument, field, "it has more than %d items", maxPodItems)
	}
}
