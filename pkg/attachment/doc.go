// SPDX-License-Identifier: Apache-2.0

// Package attachment answers which network is which device in which container.
//
// Its invariant: a device is said to be a container's own only when the kubelet
// gave it to that container; no annotation can say so. What cannot be read is
// the error of its own attachment and harms no other.
package attachment
