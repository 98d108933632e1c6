// SPDX-License-Identifier: Apache-2.0

// Package podman has the tests of jackfield-netavark and jackfield-hook under Podman 5 with netavark, and with a real
// vswitch, grout. Package parts fetches the programs. The tests run in a jail, over whose /usr the packages of Podman
// are mounted.
//
// Invariant: a test leaves no port, record, socket directory or device-info behind, and checks this.
package podman
