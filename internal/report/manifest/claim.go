// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// The kinds of a Claim (resource.k8s.io).
const (
	ResourceClaim         = "ResourceClaim"
	ResourceClaimTemplate = "ResourceClaimTemplate"
)

// Claim is a ResourceClaim or a ResourceClaimTemplate.
type Claim struct {
	Requests []ClaimRequest
	Devices  []ClaimDevice // that the scheduler allocated, of a claim of the cluster
}

// ClaimRequest is a request of a claim for devices of one class, or of the first available of several.
type ClaimRequest struct {
	Name            string
	DeviceClassName string      // in v1beta1
	Exactly         deviceClass // in v1 and v1beta2
	FirstAvailable  []deviceClass
}

type deviceClass struct{ DeviceClassName string }

// Classes returns the names of the device classes.
func (r *ClaimRequest) Classes() (names []string) {
	for _, class := range append([]deviceClass{{r.DeviceClassName}, r.Exactly}, r.FirstAvailable...) {
		if class.DeviceClassName != "" {
			names = append(names, class.DeviceClassName)
		}
	}
	return names
}

// ClaimDevice is a device that is allocated to a request, with its subrequest.
type ClaimDevice struct{ Request, Driver, Pool, Device string }

// claimSpec is the part of a ResourceClaimSpec that names requests, or a ResourceClaimTemplateSpec, which holds one.
type claimSpec struct {
	Devices struct{ Requests []ClaimRequest }
	Spec    *claimSpec
}

// addClaim adds a ResourceClaim or ResourceClaimTemplate.
func (o *Objects) addClaim(data json.RawMessage, x *object) error {
	var c struct {
		Spec   claimSpec
		Status struct {
			Allocation struct {
				Devices struct{ Results []ClaimDevice }
			}
		}
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("%s: %w", x.title(), err)
	}
	var claim Claim
	if x.Kind == ResourceClaim {
		claim = Claim{c.Spec.Devices.Requests, c.Status.Allocation.Devices.Results}
	} else if c.Spec.Spec != nil {
		claim.Requests = c.Spec.Spec.Devices.Requests
	}
	o.Claims[x.Kind+" "+cmp.Or(x.Metadata.Namespace, o.namespace)+"/"+x.Metadata.Name] = claim
	return nil
}

// PodClaim is an element of a pod's resourceClaims: it names a claim, or a template for one.
type PodClaim struct {
	Name                      string `json:"name"`
	ResourceClaimName         string `json:"resourceClaimName"`
	ResourceClaimTemplateName string `json:"resourceClaimTemplateName"`
}

// Object returns the kind and name of the object that the element names; "" if it names none or two.
func (c *PodClaim) Object() (kind, name string) {
	switch {
	case c.ResourceClaimName != "" && c.ResourceClaimTemplateName == "":
		return ResourceClaim, c.ResourceClaimName
	case c.ResourceClaimTemplateName != "" && c.ResourceClaimName == "":
		return ResourceClaimTemplate, c.ResourceClaimTemplateName
	}
	return "", ""
}

// ClaimName returns the name of the claim in the cluster, "" if the manifest does not say it: the status
// of a running pod names those from templates.
func (p *Pod) ClaimName(c *PodClaim) string {
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name == c.Name {
			return s.ResourceClaimName
		}
	}
	return c.ResourceClaimName
}

// ClaimUse is a claim that a container uses, by its name in the pod's spec. Request is "" for all of the
// claim's requests.
type ClaimUse struct {
	Name    string `json:"name"`
	Request string `json:"request"`
}

// ClaimUses returns the claims that a container uses.
func (p *Pod) ClaimUses(container string) []ClaimUse {
	for _, c := range p.containers() {
		if c.Name == container {
			return c.Resources.Claims
		}
	}
	return nil
}
