// SPDX-License-Identifier: Apache-2.0

// Package critest runs critest of cri-tools against real runtimes, without and with Jackfield's plugin. A spec must have
// the same result both times.
//
// The runtimes get the calls through a proxy, which puts the pods' cgroups below the jail's.
//
// Specs that a runtime fails by itself are listed in package compatibility with their reasons. Images come from a registry in the
// test process, because critest pulls each of its images.
package critest
