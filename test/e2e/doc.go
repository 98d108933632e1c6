// SPDX-License-Identifier: Apache-2.0

// Package e2e is the harness of the tests against real runtimes, and contains these tests. A test gets an H,
// which is a node with an unmodified containerd, and runs pods on it:
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
// Invariant: the whole test process runs in a jail (see package jail), where it is root. Tests may therefore
// write to /etc/cdi or /run, and read paths of the host with calls of package os. When a test ends,
// everything that it created through H is removed. Tests that share a node run one after another and must not
// be parallel.
//
// A test is skipped only where the machine cannot run it. The skip states the reason. In CI it is a failure.
//
// The cache of go test does not notice that a command of Jackfield has changed: run with -count=1.
package e2e
