// SPDX-License-Identifier: Apache-2.0

// Package attachment finds a pod's network attachments and the devices of its containers.
//
// Only the kubelet decides which container owns a device. Annotations, files and the environment do
// not, because a pod's author can write them. The environment is trusted only on a host where the
// kubelet has no socket, and with [Options].KubeletRequired not even there.
//
// An unreadable source is an error or a note of its own attachment only. If two sources contradict
// each other about a device, a network or an owner, the attachment has a [ConflictError] with both.
// Nothing is guessed.
//
// The cost for a sandbox does not depend on the files of other sandboxes: only the directory of
// device-info files is listed, once, and again after lost events. The kubelet is queried only about
// a device that the caller wants, and for at most a second or half of the caller's remaining time,
// because a runtime's call is waiting.
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
//	pods.go          the kubelet's Pods API: labels, extended resources of DRA drivers
//	claims.go        device metadata of resource claims (DRA)
//	owner.go         the owner of a device
//	allocated.go     devices without a network
//
// docs/explanation/who-gets-which-device.md lists the order in which the sources are trusted.
package attachment
