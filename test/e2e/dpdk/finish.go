// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
)

// Finish ends the container's testpmd, which is its first process, and returns what
// its ports forwarded.
func Finish(t *testing.T, h *e2e.H, ctr *e2e.Container) map[int]Counters {
	t.Helper()
	if err := unix.Kill(ctr.PID(), unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	ctr.WaitLogs("Bye...")
	h.Eventually(func() error {
		status, err := ctr.Status(t.Context())
		if err == nil && status.GetState() != cri.ContainerState_CONTAINER_EXITED {
			err = fmt.Errorf("testpmd said good-bye, and the container is %v", status.GetState())
		}
		return err
	})
	return Forwarded(ctr.Logs())
}
