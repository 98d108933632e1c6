// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/diag"
)

// The kinds of a Claim (resource.k8s.io).
const (
	ResourceClaim         = "ResourceClaim"
	ResourceClaimTemplate = "ResourceClaimTemplate"
)

// Claim is a ResourceClaim or a ResourceClaimTemplate.
type Claim struct {
	Kind, Namespace, Name string
	Requests              []ClaimRequest
	Devices               []ClaimDevice // that the scheduler allocated, of a claim of the cluster
}

// ClaimRequest is a request of a claim for devices of one class, or of the first available of several.
type ClaimRequest struct {
	Name    string
	Classes []string
}

// ClaimDevice is a device that is allocated to a request, with its subrequest.
type ClaimDevice struct{ Request, Driver, Pool, Device string }

// claimSpec is the part of a ResourceClaimSpec that names requests, in the versions v1 and v1beta2
// (exactly) and v1beta1.
type claimSpec struct {
	Devices struct {
		Requests []struct {
			Name            string
			DeviceClassName string
			Exactly         struct{ DeviceClassName string }
			FirstAvailable  []struct{ DeviceClassName string }
		}
	}
}

func (s *claimSpec) requests() (out []ClaimRequest) {
	for _, r := range s.Devices.Requests {
		request := ClaimRequest{Name: r.Name}
		classes := []string{r.DeviceClassName, r.Exactly.DeviceClassName}
		for _, sub := range r.FirstAvailable {
			classes = append(classes, sub.DeviceClassName)
		}
		for _, class := range classes {
			if class != "" {
				request.Classes = append(request.Classes, class)
			}
		}
		out = append(out, request)
	}
	return out
}

// ParseClaims returns the ResourceClaims and ResourceClaimTemplates in a manifest; messages name the
// file. Other objects are skipped.
func ParseClaims(file string, data []byte) ([]Claim, error) {
	docs, err := DecodeYAML(data)
	if err != nil {
		return nil, fmt.Errorf("read manifest %q: %w: %w", file, err, errdefs.ErrInvalidArgument)
	}
	var all []Claim
	for ; len(docs) > 0; docs = docs[1:] {
		var o struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Items    []json.RawMessage
		}
		// Parse reports objects that are invalid. Other kinds have other types.
		if err := json.Unmarshal(docs[0], &o); err != nil {
			continue
		}
		for _, item := range o.Items {
			if kind := strings.TrimSuffix(o.Kind, "List"); kind != "" {
				item = withKind(item, kind)
			}
			docs = append(docs, item)
		}
		if o.Kind != ResourceClaim && o.Kind != ResourceClaimTemplate {
			continue
		}
		claim := Claim{Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
		if err := claim.parse(docs[0]); err != nil {
			return nil, fmt.Errorf("read manifest %q: %s %s: %w: %w", file, o.Kind, diag.Quote(o.Metadata.Name, diag.Most), err, errdefs.ErrInvalidArgument)
		}
		all = append(all, claim)
	}
	return all, nil
}

// parse reads requests and devices of a claim's object.
func (c *Claim) parse(data json.RawMessage) error {
	if c.Kind == ResourceClaimTemplate {
		var o struct{ Spec struct{ Spec claimSpec } }
		err := json.Unmarshal(data, &o)
		c.Requests = o.Spec.Spec.requests()
		return err
	}
	var o struct {
		Spec   claimSpec
		Status struct {
			Allocation struct {
				Devices struct{ Results []ClaimDevice }
			}
		}
	}
	err := json.Unmarshal(data, &o)
	c.Requests, c.Devices = o.Spec.requests(), o.Status.Allocation.Devices.Results
	return err
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
