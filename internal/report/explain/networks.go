// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// explainNetworks returns an item for each network of a pod without a sandbox: their device-info cannot be found.
// The engine reports annotations that cannot be read.
func (x *Explainer) explainNetworks(r *engine.Request) []engine.Item {
	wants, err := annotation.Parse(r.Annotations, r.Container)
	if err != nil || wants.Networks.Mode == annotation.NetworksNone {
		return nil
	}
	var items []engine.Item
	add := func(name, network, from string) {
		item := engine.Item{Kind: engine.KindNetwork, Name: name, Request: "network " + diag.Quote(name), From: from}
		item.SetOutcome(engine.NotChecked, errors.New("needs --sandbox-id of a scheduled pod: device-info of networks is "+
			"found by the pod's sandbox"))
		if grant, err := x.engine.Policy().Network(engine.Subject(r), network); network != "" &&
			(err != nil || grant.Rule == "") {
			item.Notes = append(item.Notes, fmt.Sprintf("no rule grants sockets or devices of network %s to namespace %s",
				diag.Quote(network), diag.Quote(r.Namespace)))
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
		item := engine.Item{Kind: engine.KindNetwork, Request: "networks", From: attachment.NetworksAnnotation}
		item.SetOutcome(engine.NotChecked, err)
		return []engine.Item{item}
	}
	for _, n := range networks {
		add(n, n, attachment.NetworksAnnotation)
	}
	return items
}

// explainPorts returns an item for each port that the pod's networks ask for. The vswitch itself is not asked.
// A network that jackfield-cni refuses, and a port that the policy denies, fail the pod.
func (x *Explainer) explainPorts(r *engine.Request) []engine.Item {
	var items []engine.Item
	for _, port := range x.opts.Manifests.Ports(r, x.opts.Config) {
		item := engine.Item{Kind: engine.KindNetwork, Name: port.Network, From: attachment.NetworksAnnotation,
			Request: port.Request()}
		if port.Err != nil {
			item.SetOutcome(engine.Refused, port.Err)
			items = append(items, item)
			continue
		}
		if grant, err := x.engine.Policy().Port(engine.Subject(r), port.Port); err != nil {
			item.SetOutcome(engine.Refused, err)
		} else if err, _ := x.engine.Policy().LimitPorts(engine.Subject(r), len(items)); err != nil {
			item.SetOutcome(engine.Refused, err)
		} else {
			by := "audit mode"
			if grant.Rule != "" {
				by = "rule " + diag.Quote(grant.Rule)
			}
			item.Rule = grant.Rule
			item.SetOutcome(engine.NotChecked, fmt.Errorf("%s grants the port; jackfield-cni creates it with the pod's sandbox",
				by))
		}
		items = append(items, item)
	}
	return items
}
