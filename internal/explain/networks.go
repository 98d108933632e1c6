// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// explainNetworks returns an item for each network of a pod without a sandbox: their device-info cannot be found.
// The engine reports annotations that cannot be read.
func (x *Explainer) explainNetworks(r *resolve.Request) []resolve.Item {
	wants, err := annotation.Parse(r.Annotations, r.Container)
	if err != nil || wants.Networks.Mode == annotation.NetworksNone {
		return nil
	}
	var items []resolve.Item
	add := func(name, network, from string) {
		item := resolve.Item{Kind: resolve.KindNetwork, Name: name, Request: "network " + diag.Quote(name), From: from}
		item.Decline(resolve.NotChecked, errors.New("needs --sandbox-id of a scheduled pod: device-info of networks is found by the pod's sandbox"))
		if grant, err := x.engine.Policy().Network(resolve.Subject(r), network); network != "" && (err != nil || grant.Rule == "") {
			item.Notes = append(item.Notes, fmt.Sprintf("no rule grants sockets or devices of network %s to namespace %s", diag.Quote(network), diag.Quote(r.Namespace)))
		}
		items = append(items, item)
	}
	for _, n := range wants.Networks.Items {
		network := ""
		if n.Name != "" && n.Interface == "" { // else it may be an interface, of any network
			network = cmp.Or(n.Namespace, r.Namespace) + "/" + n.Name
		}
		add(n.Item, network, n.Key)
	}
	if len(items) > 0 || r.Annotations[attachment.NetworksAnnotation] == "" {
		return items
	}
	networks, err := attachment.NamedNetworks(r.Annotations[attachment.NetworksAnnotation], r.Namespace)
	if err != nil {
		item := resolve.Item{Kind: resolve.KindNetwork, Request: "networks", From: attachment.NetworksAnnotation}
		item.Decline(resolve.NotChecked, err)
		return []resolve.Item{item}
	}
	for _, n := range networks {
		add(n, n, attachment.NetworksAnnotation)
	}
	return items
}

// explainPorts returns an item for each port that the pod's networks ask for. The vswitch itself is not asked.
// A network that jackfield-cni refuses, and a port that the policy denies, fail the pod.
func (x *Explainer) explainPorts(r *resolve.Request) []resolve.Item {
	var items []resolve.Item
	for _, port := range x.opts.Manifests.Ports(r, x.opts.Config) {
		item := resolve.Item{Kind: resolve.KindNetwork, Name: port.Network, From: attachment.NetworksAnnotation, Request: port.Request()}
		if port.Err != nil {
			item.Decline(resolve.Refused, port.Err)
			items = append(items, item)
			continue
		}
		if grant, err := x.engine.Policy().Port(resolve.Subject(r), port.Port); err != nil {
			item.Decline(resolve.Refused, err)
		} else if err, _ := x.engine.Policy().LimitPorts(resolve.Subject(r), len(items)); err != nil {
			item.Decline(resolve.Refused, err)
		} else {
			by := "audit mode"
			if grant.Rule != "" {
				by = "rule " + diag.Quote(grant.Rule)
			}
			item.Rule = grant.Rule
			item.Decline(resolve.NotChecked, fmt.Errorf("%s grants the port; jackfield-cni creates it with the pod's sandbox", by))
		}
		items = append(items, item)
	}
	return items
}
