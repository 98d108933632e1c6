// SPDX-License-Identifier: Apache-2.0

// Package attachment finds a pod's network attachments and the devices of its containers.
//
// Only the kubelet decides which container a device belongs to. Annotations, files and the
// environment, which a pod's author can write, do not. The environment is trusted only on a
// host where the kubelet has no socket, and not there with [Options].KubeletRequired.
//
// A source that cannot be read is the error or a note of its own attachment only. If two
// sources contradict each other on a device, a network or an owner, the attachment is a
// [ConflictError] that names both; nothing is guessed.
//
// The cost for a sandbox does not depend on the files of other sandboxes: only the
// directory of device-info files is listed, once, and again when events were lost. The
// kubelet is asked only about a device that the caller wants, and is never waited for
// longer than a second or half of the caller's remaining time, because a runtime's call waits meanwhile.
//
// There is one file per source:
//
//	find.go          device-info files, and the comparison of all sources
//	multus.go        Multus' record of the sandbox
//	cni_result.go    libcni's record of one attachment
//	networks.go      the pod's networks annotation: names and interfaces
//	environment.go   PCIDEVICE_* and PCIDEVICE_*_INFO
//	deviceplugin.go  the device plugin's files
//	kubelet.go       Pod Resources
//	claims.go        device metadata of resource claims (DRA)
//	owner.go         the owner of a device
//	allocated.go     devices without a network
//
// docs/explanation/who-gets-which-device.md has the order in which the sources are trusted.
package attachment
