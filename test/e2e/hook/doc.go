// SPDX-License-Identifier: Apache-2.0

// Package hook has the tests of jackfield-hook under real runtimes: Podman with
// runc and with crun, and both of these alone, without Kubernetes. What the
// programs are is fetched by package parts; everything happens in a jail.
//
// Invariant: a test leaves no mount, no staging directory and no cgroup behind,
// and checks that.
package hook
