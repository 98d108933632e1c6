// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// Objects are the objects of manifests that decide what containers get. Of two networks or claims with the same
// name the last one counts.
type Objects struct {
	Pods     []*Pod                   // and pod templates, in the order of the files
	Networks map[string][]policy.Port // that ask for ports, by NAMESPACE/NAME; a port without a bridge leaves it to the vswitch
	Claims   map[string]Claim         // by KIND NAMESPACE/NAME

	namespace string   // of networks and claims that name none
	others    []string // kinds without pods in a manifest, quoted, each once
}

// Add adds the objects of a further manifest.
func (o *Objects) Add(more Objects) {
	if o.Networks == nil {
		o.Networks, o.Claims = map[string][]policy.Port{}, map[string]Claim{}
	}
	o.Pods = append(o.Pods, more.Pods...)
	maps.Copy(o.Networks, more.Networks)
	maps.Copy(o.Claims, more.Claims)
}

// CheckContainer returns an error where no pod has a container of the name.
func (o *Objects) CheckContainer(name string) error {
	var names []string
	for _, p := range o.Pods {
		for _, have := range p.ContainerNames() {
			if !slices.Contains(names, have) {
				names = append(names, have)
			}
		}
	}
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	if len(o.Pods) == 1 {
		return fmt.Errorf("%s has no container %s%s: %w", o.Pods[0].Title(), diag.Quote(name), diag.Alternatives(name, names), errdefs.ErrNotFound)
	}
	return fmt.Errorf("no pod has a container %s; they have %s%s: %w", diag.Quote(name), strings.Join(names, ", "), diag.Suggest(name, names...), errdefs.ErrNotFound)
}

// NetworkPort is a port that a network of a pod asks for.
type NetworkPort struct {
	Network string // namespace/name
	policy.Port
}

// Ports returns the ports of the networks of a container's pod, as far as the manifests have the networks.
func (o *Objects) Ports(r *resolve.Request, cfg *config.Config) (ports []NetworkPort) {
	networks, err := attachment.NamedNetworks(r.Annotations[attachment.NetworksAnnotation], r.Namespace)
	if err != nil {
		return nil // the engine reports it
	}
	for _, network := range networks {
		for _, port := range o.Networks[network] {
			v, _ := cfg.Vswitch(port.Switch)
			port.Bridge = cmp.Or(port.Bridge, v.Defaults.Bridge)
			ports = append(ports, NetworkPort{network, port})
		}
	}
	return ports
}
