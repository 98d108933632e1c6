// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/wording"
)

// usageAnnotation is the container annotation that says what a container was
// given, where a rule limits what its pod gets. The runtime keeps it, so that a
// plugin that was started anew knows. A pod's author writes the pod's annotations,
// not the container's.
const usageAnnotation = "usage.jackfield.dev"

const usageFormat = "cdi=%d,devices=%d,sockets=%d,mounts=%d,hooks=%d"

// maxUsage is far more than any container is given; sums of it stay small.
const maxUsage = 1 << 20

// markUsage has the runtime keep what the container got.
func markUsage(adjust *api.ContainerAdjustment, u *policy.Usage) *api.ContainerAdjustment {
	if u == nil || *u == (policy.Usage{}) {
		return adjust
	}
	if adjust == nil {
		adjust = &api.ContainerAdjustment{}
	}
	adjust.AddAnnotation(usageAnnotation, formatUsage(u))
	return adjust
}

func formatUsage(u *policy.Usage) string {
	return fmt.Sprintf(usageFormat, u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks)
}

// parseUsage reads what formatUsage gives, and nothing else: a count below nothing
// would lift the limit of the container's pod.
func parseUsage(text string) (policy.Usage, error) {
	var u policy.Usage
	_, err := fmt.Sscanf(text, usageFormat, &u.CDI, &u.Devices, &u.Sockets, &u.Mounts, &u.Hooks)
	if err != nil || formatUsage(&u) != text || min(u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks) < 0 || max(u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks) > maxUsage {
		return policy.Usage{}, fmt.Errorf("found %s, want %s with counts from 0 to %d: %w", wording.Quote(text, 100), strings.ReplaceAll(usageFormat, "%d", "N"), maxUsage, errdefs.ErrInvalidArgument)
	}
	return u, nil
}

// noteUsage reads back what living containers got.
func (p *Plugin) noteUsage(sandboxes, alive map[string]bool, containers []*api.Container) {
	p.ledger.Retain(func(id string) bool { return sandboxes[id] }, func(id string) bool { return alive[id] })
	for _, c := range containers {
		text, ok := c.GetAnnotations()[usageAnnotation]
		if !ok || c.GetState() == api.ContainerState_CONTAINER_STOPPED {
			continue // one that has ended has nothing
		}
		u, err := parseUsage(text)
		if err != nil {
			p.log.WithError(err).WithField("containerID", c.GetId()).Warnf("the container's annotation %s does not say what it was given, and is left out of its pod's limits", usageAnnotation)
			continue
		}
		p.ledger.Note(c.GetPodSandboxId(), containerName(c), c.GetId(), u)
	}
}
