// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"testing"

	"github.com/jackfield/jackfield/test/e2e/packaged"
)

// The Podman tutorial works as printed, with the Debian package and Podman 4.3.
func TestPodmanTutorial(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		h.write("rootfs/etc/group", "root:x:0:\n")
		packaged.RunPodmanTutorial(t, packaged.PodmanRun(h.rootfs(), h.installedPodman(runtime)...))
	})
}
