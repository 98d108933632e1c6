// SPDX-License-Identifier: Apache-2.0

// Package cdi finds CDI devices on this host and injects them into OCI specs (Container Device
// Interface, versions 0.3.0 to 1.1.0). It does what
// tags.cncf.io/container-device-interface/pkg/cdi does, for container runtimes, device plugins
// and DRA drivers.
//
// A [Cache] sees every spec file that was renamed into place before a call. A broken file makes
// no other file's devices unusable. What a call returns belongs to the caller. An injection
// that fails leaves the OCI spec as it was.
//
// Spec files that anyone but root and the process's own user can write are refused, unless
// [Options.TrustAnyone] is set: a user who can write a spec file decides what runs as root.
package cdi
