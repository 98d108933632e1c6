// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// Collection is the pods of several manifests, and the networks and claims that these hold. Of two with the
// same name the last one counts.
type Collection struct {
	Pods []*Pod

	ports  map[string][]policy.Port // of networks, by namespace/name
	claims map[string]Claim         // by kind and namespace/name
}

// Add adds the objects of a manifest. Networks and claims that name no namespace are in the given one.
func (c *Collection) Add(o *Objects, namespace string) {
	if c.ports == nil {
		c.ports, c.claims = map[string][]policy.Port{}, map[string]Claim{}
	}
	c.Pods = append(c.Pods, o.Pods...)
	for _, n := range o.Networks {
		c.ports[cmp.Or(n.Namespace, namespace)+"/"+n.Name] = n.Ports
	}
	for _, claim := range o.Claims {
		c.claims[claim.Kind+" "+cmp.Or(claim.Namespace, namespace)+"/"+claim.Name] = claim
	}
}

// Claim returns a claim or template by its title, KIND NAMESPACE/NAME.
func (c *Collection) Claim(title string) (claim Claim, ok bool) {
	claim, ok = c.claims[title]
	return claim, ok
}

// CheckContainer returns an error where no pod has a container of the name.
func (c *Collection) CheckContainer(name string) error {
	var names []string
	for _, p := range c.Pods {
		for _, have := range p.ContainerNames() {
			if !slices.Contains(names, have) {
				names = append(names, have)
			}
		}
	}
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	if len(c.Pods) == 1 {
		return fmt.Errorf("%s has no container %s%s: %w", c.Pods[0].Title(), diag.Quote(name), diag.Alternatives(name, names), errdefs.ErrNotFound)
	}
	return fmt.Errorf("no pod has a container %s; they have %s%s: %w", diag.Quote(name), strings.Join(names, ", "), diag.Suggest(name, names...), errdefs.ErrNotFound)
}

// NetworkPort is a port that a network of a pod asks for.
type NetworkPort struct {
	Network string // namespace/name
	policy.Port
}

// Ports returns the ports of the networks of a container's pod, as far as the collection has the networks.
func (c *Collection) Ports(r *resolve.Request, cfg *config.Config) (ports []NetworkPort) {
	networks, err := attachment.NamedNetworks(r.Annotations[attachment.NetworksAnnotation], r.Namespace)
	if err != nil {
		return nil // the engine reports it
	}
	for _, network := range networks {
		for _, port := range c.ports[network] {
			v, _ := cfg.Vswitch(port.Switch)
			port.Bridge = cmp.Or(port.Bridge, v.Defaults.Bridge)
			ports = append(ports, NetworkPort{network, port})
		}
	}
	return ports
}
