// SPDX-License-Identifier: Apache-2.0

// Package attachment answers which network is which device in which container.
//
// Its invariants:
//
// A device is said to be a container's own only when the kubelet gave it to that
// container. No annotation can say so, no file, and no environment, which a pod's
// author can write; the environment is believed only on a host that has no
// kubelet's socket, and not even there with [Options].KubeletRequired.
//
// What cannot be read is the error or the note of its own attachment and harms no
// other. Where two sources contradict each other on a device, a network or an
// owner, the attachment is a [ConflictError] that names both: nothing is guessed.
//
// A sandbox is answered at a cost that does not depend on what other sandboxes
// left behind: no directory is listed, except, once and then only when it changed,
// that of the device-info files. The kubelet is asked only for the sake of a device
// that somebody wants, and never waited for longer than [Options].Budget.
//
// There is one file per source:
//
//	find.go         device-info files, and what the sources say together
//	multus.go       Multus' record of the sandbox
//	result.go       libcni's record of one attachment
//	networks.go     the pod's networks annotation: names and interfaces
//	environment.go  PCIDEVICE_* and PCIDEVICE_*_INFO
//	plugin.go       the device plugin's files
//	kubelet.go      Pod Resources
//	owner.go        whose a device is
//	unclaimed.go    devices without a network
//	ahead.go        what is done before a container is created
//
// docs/attachments.md has the order in which they are believed.
package attachment
