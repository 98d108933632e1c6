// SPDX-License-Identifier: Apache-2.0

// Package reconcile creates the ports of living sandboxes again that a vswitch has lost, and removes ports
// of sandboxes that are gone.
//
// The records of the CNI plugin say which ports there should be. A port is removed only if neither the
// records nor the runtime know its sandbox, and both were read as a whole. Of containers that no runtime reports, as
// those of Podman, the record alone says that they live.
package reconcile
