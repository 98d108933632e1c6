// SPDX-License-Identifier: Apache-2.0

// Package nri is the NRI plugin: the container runtime calls it when it creates a container.
//
// One lock in the runtime covers every plugin call on the node, and a plugin that takes
// longer than the request timeout is disconnected. So a handler does no work that can be done
// beforehand, waits no longer than the runtime's deadline allows, and answers with an error
// rather than not at all. NRI 0.12.4 knows failure policies: the plugin asks for one, so that
// the container fails when the plugin does not answer. NRI 0.10 knows only validators: there
// the plugin is one, because a container without its validator fails.
//
// Work that can hang runs on workers (handlers.go). What the plugin knows of containers is in
// containers.go and hotplug.go, and what it keeps on the host in statedir.go.
package nri
