// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Lie is an invalid answer, which a real kubelet never sends.
type Lie int

// The lies. Each but Honest answers every call, about the pod that the call names or, for
// List, the pod of [Server.SetLie].
const (
	Honest             Lie = iota
	Nothing                // an empty message
	OtherPod               // Get: the devices of pod "victim/victim"
	NilEntries             // a pod with an empty container
	DuplicateContainer     // one container twice, with different devices
	InvalidID              // a device ID with a newline
	DuplicatePod           // List: the pod twice, with different devices
	TooLarge               // 17 MiB
	Garbage                // bytes that are not protobuf
)

// Lies returns all lies.
func Lies() []Lie {
	var all []Lie
	for l := Nothing; l <= Garbage; l++ {
		all = append(all, l)
	}
	return all
}

func (l Lie) String() string {
	names := []string{"Honest", "Nothing", "OtherPod", "NilEntries", "DuplicateContainer", "InvalidID", "DuplicatePod",
		"TooLarge", "Garbage"}
	if l < 0 || int(l) >= len(names) {
		return fmt.Sprintf("Lie(%d)", int(l))
	}
	return names[l]
}

// answer returns the message, or the bytes, of the lie.
func (l Lie) answer(req any, pod [2]string) (any, error) {
	get, isGet := req.(*v1.GetPodResourcesRequest)
	if isGet {
		pod = [2]string{get.GetPodNamespace(), get.GetPodName()}
	}
	p := &v1.PodResources{Namespace: pod[0], Name: pod[1]}
	pods := []*v1.PodResources{p}
	container := func(name string, ids ...string) *v1.ContainerResources {
		return &v1.ContainerResources{Name: name, Devices: []*v1.ContainerDevices{{ResourceName: "example.com/lie", DeviceIds: ids}}}
	}
	p.Containers = []*v1.ContainerResources{container("lie", "1")}
	switch l {
	case Nothing:
		return []byte{}, nil
	case OtherPod:
		p.Namespace, p.Name = "victim", "victim"
	case NilEntries:
		p.Containers = append(p.Containers, nil)
	case DuplicateContainer:
		p.Containers = append(p.Containers, container("lie", "2"))
	case InvalidID:
		p.Containers = []*v1.ContainerResources{container("lie", "1\n2")}
	case DuplicatePod:
		pods = append(pods, &v1.PodResources{Namespace: p.Namespace, Name: p.Name,
			Containers: []*v1.ContainerResources{container("lie", "2")}})
		if isGet { // a message of Get has one pod, but its bytes can have two
			a, err := codec{}.Marshal(&v1.ListPodResourcesResponse{PodResources: pods})
			return a.Materialize(), err
		}
	case TooLarge:
		return make([]byte, 17<<20), nil
	case Garbage:
		return []byte("\xff\xfe\xfdgarbage"), nil
	}
	if isGet {
		return &v1.GetPodResourcesResponse{PodResources: p}, nil
	}
	return &v1.ListPodResourcesResponse{PodResources: pods}, nil
}
