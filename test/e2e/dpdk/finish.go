// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
)

// Finish ends the container's testpmd, which is its first process, and returns what its ports forwarded.
func Finish(t *testing.T, h *e2e.H, ctr *e2e.Container) map[int]Counters {
	t.Helper()
	if err := unix.Kill(ctr.PID(), unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	ctr.WaitLogs("Shutting down port")
	if !waitClosed(ctr) {
		// Seen once in some hundred runs, with memif: closing the port waits for DPDK's interrupt thread. By
		// then testpmd has printed what it forwarded.
		t.Logf("testpmd in container %q hangs while it closes its port, and is killed", ctr.Name())
		ctr.Stop()
	}
	h.Eventually(func() error {
		status, err := ctr.Status(t.Context())
		if err == nil && status.GetState() != cri.ContainerState_CONTAINER_EXITED {
			err = fmt.Errorf("testpmd ended, and the container is %v", status.GetState())
		}
		return err
	})
	return Forwarded(ctr.Logs())
}

// waitClosed waits ten seconds until testpmd has closed its ports, and reports whether it has.
func waitClosed(ctr *e2e.Container) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(ctr.Logs(), "Bye...") {
			return true
		}
	}
	return false
}
