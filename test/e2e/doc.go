// SPDX-License-Identifier: Apache-2.0

// Package e2e is the harness of the tests against real runtimes, and those tests
// themselves. A test gets an H, which is a node with an unmodified containerd,
// and runs pods on it:
//
//	func TestMain(m *testing.M) { e2e.Main(m) }
//
//	func TestThing(t *testing.T) {
//		e2e.Each(t, func(t *testing.T, h *e2e.H) {
//			h.StartPlugin(node.PluginOptions{Config: config})
//			ctr := h.RunPod(node.PodOptions{}).Run(node.ContainerOptions{})
//			out := ctr.Output("cat", "/run/x")
//		})
//	}
//
// Invariant: the whole test process runs in a jail (see package jail): it is root
// of a machine of its own, so that tests may write to /etc/cdi or /run and look
// at the host's paths with plain os calls. What a test made through H is gone
// when the test ends. Tests that share a node therefore follow one another; they
// must not be parallel.
//
// A test is skipped only where this machine cannot run it, with the reason, and
// fails then in CI, which has promised that it can.
//
// Results must not be taken from go test's cache, which does not see that a
// command of Jackfield has changed: run with -count=1.
package e2e
