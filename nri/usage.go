// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/engine"
)

// usageAnnotation is the container annotation with the usage of a container, if a rule limits its pod. The
// runtime keeps it, so that it survives a restart of the plugin. A pod's author writes the pod's annotations,
// not the container's.
const usageAnnotation = "usage.jackfield.dev"

const usageFormat = "cdi=%d,devices=%d,sockets=%d,mounts=%d,hooks=%d"

// maxUsage is far more than any container uses, and small enough that sums do not overflow.
const maxUsage = 1 << 20

// markUsage adds the annotation to an adjustment.
func markUsage(adjust *api.ContainerAdjustment, u *policy.Usage) *api.ContainerAdjustment {
	if u == nil || *u == (policy.Usage{}) {
		return adjust
	}
	adjust = cmp.Or(adjust, &api.ContainerAdjustment{})
	adjust.AddAnnotation(usageAnnotation, formatUsage(u))
	return adjust
}

func formatUsage(u *policy.Usage) string {
	return fmt.Sprintf(usageFormat, u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks)
}

// parseUsage is the exact inverse of formatUsage: a negative count would lift the limit of the container's
// pod.
func parseUsage(text string) (policy.Usage, error) {
	var u policy.Usage
	_, err := fmt.Sscanf(text, usageFormat, &u.CDI, &u.Devices, &u.Sockets, &u.Mounts, &u.Hooks)
	if err != nil || formatUsage(&u) != text || min(u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks) < 0 ||
		max(u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks) > maxUsage {
		return policy.Usage{}, fmt.Errorf("invalid value %s: must be %s with counts from 0 to %d: %w", diag.Quote(text),
			strings.ReplaceAll(usageFormat, "%d", "N"), maxUsage, errdefs.ErrInvalidArgument)
	}
	return u, nil
}

// restoreUsage reads the usage of living containers from their annotations.
func restoreUsage(ledger *engine.Ledger, containers []*api.Container, log *logrus.Entry) {
	for _, c := range containers {
		text, ok := c.GetAnnotations()[usageAnnotation]
		if !ok || c.GetState() == api.ContainerState_CONTAINER_STOPPED {
			continue // an ended container uses nothing
		}
		u, err := parseUsage(text)
		if err != nil {
			log.WithError(err).WithField("containerID", c.GetId()).Warnf("ignored the container's annotation %s: "+
				"the container does not count for its pod's limits", usageAnnotation)
			continue
		}
		ledger.RecordUsage(c.GetPodSandboxId(), containerName(c), c.GetId(), u)
	}
}
