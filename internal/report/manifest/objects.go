// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// Objects are the objects of manifests that decide which devices containers get. Of two networks or claims with the
// same name the last one counts.
type Objects struct {
	Pods     []*Pod             // and pod templates, in the order of the files
	Networks map[string]Network // of Jackfield, and those that no plugin can read, by NAMESPACE/NAME
	Claims   map[string]Claim   // by KIND NAMESPACE/NAME

	// Definitions counts the NetworkAttachmentDefinitions, also those of other plugins.
	Definitions int

	namespace string   // of networks and claims that name none
	others    []string // kinds without pods in a manifest, quoted, each once
}

// Add adds the objects of a further manifest.
func (o *Objects) Add(more Objects) {
	if o.Networks == nil {
		o.Networks, o.Claims = map[string]Network{}, map[string]Claim{}
	}
	o.Pods = append(o.Pods, more.Pods...)
	o.Definitions += more.Definitions
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
		return fmt.Errorf("%s has no container %s%s: %w", o.Pods[0].Title(), diag.Quote(name),
			diag.Alternatives(name, names), errdefs.ErrNotFound)
	}
	return fmt.Errorf("no pod has a container %s; they have %s%s: %w", diag.Quote(name), strings.Join(names, ", "),
		diag.Suggest(name, names...), errdefs.ErrNotFound)
}

// Ports returns the ports of the networks of a container's pod, as far as the manifests have the networks, and the
// networks that jackfield-cni refuses.
func (o *Objects) Ports(r *engine.Request, cfg *config.Config) (ports []NetworkPort) {
	networks, err := attachment.NamedNetworks(r.Annotations[attachment.NetworksAnnotation], r.Namespace)
	if err != nil {
		return nil // the engine reports it
	}
	for _, name := range networks {
		network := o.Networks[name]
		if network.Err != nil {
			ports = append(ports, NetworkPort{Network: name, Err: network.Err})
			continue
		}
		for _, port := range network.Ports {
			p := NetworkPort{Network: name, Port: port}
			p.Bridge, p.Err = cfg.FindBridge(port.Switch, port.Bridge)
			ports = append(ports, p)
		}
	}
	return ports
}
