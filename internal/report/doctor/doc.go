// SPDX-License-Identifier: Apache-2.0

// Package doctor checks what keeps containers of a node from getting devices and sockets: the
// runtime's NRI, the plugin, the configuration, directories and files, and what else injects
// devices.
//
// A check never keeps the others from running: one that panics, or that a file system blocks,
// becomes a finding. Nothing is changed unless the caller asks for it, and then only what is safe.
package doctor
