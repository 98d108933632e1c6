// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"sync"

	"github.com/containerd/nri/pkg/api"
)

// untold are the sandboxes that were there before the connection. containerd tells
// neither of the end nor of the removal of a pod that is older than its own process,
// but of its containers'.
type untold struct {
	mu        sync.Mutex
	sandboxes map[string]bool
}

// synchronize takes up what lives.
func (u *untold) synchronize(pods []*api.PodSandbox) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sandboxes = make(map[string]bool, len(pods))
	for _, pod := range pods {
		u.sandboxes[pod.GetId()] = true
	}
}

func (u *untold) has(sandboxID string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sandboxes[sandboxID]
}

func (u *untold) forget(sandboxID string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sandboxes, sandboxID)
}
