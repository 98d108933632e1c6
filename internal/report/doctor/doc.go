// SPDX-License-Identifier: Apache-2.0

// Package doctor finds the faults that keep containers of a node from getting devices and sockets: in the runtime's
// NRI, the plugin, the configuration, directories and files, and in other programs that inject devices.
//
// A check never keeps the others from running: a check that panics, or that a file system blocks, becomes a finding.
// Nothing is changed unless the caller asks for it, and then only safe corrections are made.
package doctor
