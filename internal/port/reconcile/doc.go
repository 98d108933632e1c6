// SPDX-License-Identifier: Apache-2.0

// Package reconcile re-creates ports of living sandboxes that a vswitch has lost, and removes ports
// of removed sandboxes.
//
// The records of the CNI plugin list the required ports. A port is removed only if neither the
// records nor the runtime have its sandbox, and both were read completely. For containers that no
// runtime reports, such as Podman's, only the record shows that they are alive.
package reconcile
