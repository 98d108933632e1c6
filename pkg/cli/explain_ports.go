// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// explainPorts adds an item for each port that the pod's networks ask for to the plan. The vswitch itself is
// not asked. A port that the policy denies fails the pod, and so the plan: the result is the plan's error.
func explainPorts(r *resolve.Request, plan *resolve.Plan, err error, requests []portRequest, p *policy.Policy, cfg *config.Config) error {
	var denied []error
	for _, request := range requests {
		item := resolve.Item{Kind: resolve.KindNetwork, Name: request.network, From: attachment.NetworksAnnotation,
			Request: fmt.Sprintf("port %s of network %s", portQuery(request.port), quoted(request.network))}
		grant, no := p.Port(resolve.Subject(r), request.port)
		if _, ok := cfg.Vswitch(request.port.Switch); !ok {
			no = fmt.Errorf("vswitch %s is not in the configuration: add it to vswitches: %w", quoted(request.port.Switch), errdefs.ErrNotFound)
		}
		if no != nil {
			item.Decline(resolve.Refused, no)
			denied = append(denied, no)
		} else {
			by := "audit mode"
			if grant.Rule != "" {
				by = "rule " + quoted(grant.Rule)
			}
			item.Rule = grant.Rule
			item.Decline(resolve.NotChecked, fmt.Errorf("%s grants the port; jackfield-cni creates it with the pod's sandbox", by))
		}
		plan.Items = append(plan.Items, item)
	}
	return failPlan(r, plan, err, denied)
}

// failPlan adds errors to those of a plan, err, and returns all of them.
func failPlan(r *resolve.Request, plan *resolve.Plan, err error, more []error) error {
	if len(more) == 0 {
		return err
	}
	plan.Set = edits.Set{}
	var failed *resolve.Error
	if errors.As(err, &failed) {
		more = append(failed.Errs, more...)
	}
	return &resolve.Error{Container: r.Name(), Errs: more, Items: plan.Items}
}
