// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/annotation"
)

// checkAsker refuses what a container of no pod asks for without the annotation that
// hook.askedBy names. Podman copies the annotations of an image's manifest to the
// container, where nothing tells them from the user's; the image does not know the value.
func (h *hook) checkAsker(s *subject, annotations map[string]string) error {
	key, value, ok := strings.Cut(h.cfg.Hook.AskedBy, "=")
	if !ok || s.ofPod || annotations[key] == value {
		return nil
	}
	if !annotation.HasAny(annotations) && !(h.cfg.Compat.DeviceInjector && annotation.HasInjector(annotations)) {
		return nil
	}
	return fmt.Errorf("annotations ask for devices or networks, which may be the image's doing: hook.askedBy demands annotation %s beside them; "+
		"start the container with --annotation %s=VALUE, VALUE being the configuration's: %w", key, key, errdefs.ErrPermissionDenied)
}
