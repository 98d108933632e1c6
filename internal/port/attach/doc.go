// SPDX-License-Identifier: Apache-2.0

// Package attach creates and removes the attachments of containers to networks: the directory of an
// attachment's socket, its port on a vswitch, and its device-info, which the other adapters read.
// The CNI plugin and the netavark plugin translate their configurations into an [Attachment], and
// its errors into those of their protocols.
//
// Its invariant: Add records an object before it creates the object, and the record is removed
// last. So Remove, or CollectGarbage of the network, removes everything that an Add created and
// nothing else, even if that Add was interrupted.
package attach
