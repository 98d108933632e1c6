// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/annotation"
)

// checkAskedBy refuses the requests of a container outside of pods that lacks the annotation of
// hook.askedBy. Podman copies the annotations of an image's manifest to the container, where they
// look like the user's. An image does not know the annotation's value.
func (h *hook) checkAskedBy(s *subject, annotations map[string]string) error {
	key, value, ok := strings.Cut(h.cfg.Hook.AskedBy, "=")
	if !ok || s.ofPod || annotations[key] == value {
		return nil
	}
	if !annotation.HasAny(annotations) && !(h.cfg.Compat.DeviceInjector && annotation.HasInjector(annotations)) {
		return nil
	}
	return fmt.Errorf("annotations ask for devices or networks, but may come from the image: hook.askedBy also requires annotation %s; "+
		"start the container with --annotation %s=VALUE, with the VALUE of the configuration: %w", key, key, errdefs.ErrPermissionDenied)
}
