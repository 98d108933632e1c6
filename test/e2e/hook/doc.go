// SPDX-License-Identifier: Apache-2.0

// Package hook has the tests of jackfield-hook under real runtimes: Podman with runc and with crun, and both
// of these alone, without Kubernetes. Package parts fetches the programs. The tests run in a jail.
//
// Invariant: a test leaves no mount, no staging directory and no cgroup behind, and checks this.
package hook
