// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/policy"
)

// usageAnnotation is the container annotation that says what a container was
// given, where a rule limits what its pod gets. The runtime keeps it, so that a
// plugin that was started anew knows. A pod's author writes the pod's annotations,
// not the container's.
const usageAnnotation = "usage.jackfield.dev"

const usageFormat = "cdi=%d,devices=%d,sockets=%d,mounts=%d,hooks=%d"

// markUsage has the runtime keep what the container got.
func markUsage(adjust *api.ContainerAdjustment, u *policy.Usage) *api.ContainerAdjustment {
	if u == nil || *u == (policy.Usage{}) {
		return adjust
	}
	if adjust == nil {
		adjust = &api.ContainerAdjustment{}
	}
	adjust.AddAnnotation(usageAnnotation, fmt.Sprintf(usageFormat, u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks))
	return adjust
}

// noteUsage reads back what living containers got.
func (p *Plugin) noteUsage(alive map[string]bool, containers []*api.Container) {
	p.ledger.Retain(func(id string) bool { return alive[id] })
	for _, c := range containers {
		text, ok := c.GetAnnotations()[usageAnnotation]
		if !ok {
			continue
		}
		var u policy.Usage
		if _, err := fmt.Sscanf(text, usageFormat, &u.CDI, &u.Devices, &u.Sockets, &u.Mounts, &u.Hooks); err != nil {
			p.log.WithError(err).WithField("containerID", c.GetId()).Warnf("the container's annotation %s does not say what it was given, and is left out of its pod's limits", usageAnnotation)
			continue
		}
		p.ledger.Note(c.GetPodSandboxId(), containerName(c), u)
	}
}
