// SPDX-License-Identifier: Apache-2.0

package allocation

// Pod is the part of the kubelet's own object of a pod that the Pods API adds to the other sources.
type Pod struct {
	UID    string
	Labels map[string]string // at the time of the query
	// NetworkStatus is the pod's annotation k8s.v1.cni.cncf.io/network-status. Users can write it, so
	// it is never trusted with a path or a device.
	NetworkStatus string
	// ExtendedClaim is the resource claim that the scheduler created for the pod's extended resources
	// of DRA drivers (KEP-5004), in the pod's namespace. It is empty if the pod has no such claim, and with
	// kubelets of 1.37, which do not report it.
	ExtendedClaim string
	// Extended are the requests of that claim. If ExtendedClaim is empty, they are derived from the pod's
	// spec, and include resources of device plugins, which have no request.
	Extended []ExtendedRequest
}

// ExtendedRequest maps an extended resource of a container to its request in the claim.
type ExtendedRequest struct{ Container, Resource, Request string }

// Requests returns the requests of the ExtendedClaim for a resource of a container.
func (p *Pod) Requests(container, resource string) (requests []string) {
	for _, r := range p.Extended {
		if r.Container == container && r.Resource == resource {
			requests = append(requests, r.Request)
		}
	}
	return requests
}

// Resource returns the extended resource that a request of the claim is for, or "".
func (p *Pod) Resource(container, request string) string {
	for _, r := range p.Extended {
		if r.Container == container && r.Request == request {
			return r.Resource
		}
	}
	return ""
}
