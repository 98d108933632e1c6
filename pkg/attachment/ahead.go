// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"strings"

	"github.com/jackfield/jackfield/pkg/podresources/allocation"
)

// Nothing reports that Find would find nothing, without opening a file; false
// when that cannot be told so cheaply. It allocates next to nothing: this is what
// a container costs that has no part in any of it.
func (f *Finder) Nothing(sandboxID, networks string, env []string) bool {
	if f.index == nil || networks != "" {
		return false
	}
	for _, kv := range env {
		// Few begin with its first letter, which costs less to look at.
		if len(kv) > 0 && kv[0] == envPrefix[0] && strings.HasPrefix(kv, envPrefix) {
			return false
		}
	}
	if sandboxID == "" {
		return true
	}
	has, err := f.index.Has(sandboxID)
	return !has && err == nil
}

// Warm does beforehand what Find will need of a sandbox that was just made: it
// reads what is on the node, and asks the kubelet, without waiting for the answer,
// where a wanted network brings a PCI or vDPA device. What fails will fail again in
// Find, and be told there. The query is about the pod: Container and Env are not
// looked at.
func (f *Finder) Warm(q Query) {
	entries, err := f.entries(q.SandboxID)
	if err != nil || len(entries) == 0 && q.Networks == "" {
		return
	}
	s := &search{Finder: f, q: &q}
	s.networks(entries)
	ahead, ok := f.kubelet.(interface{ Prefetch(key allocation.PodKey) })
	if !ok || f.noKubelet() != "" {
		return
	}
	for i := range s.attached {
		a := &s.attached[i]
		if _, ok := deviceOf(a.Info); ok && (q.Wanted == nil || q.Wanted(a)) {
			ahead.Prefetch(q.key())
			return
		}
	}
}
