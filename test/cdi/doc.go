// SPDX-License-Identifier: Apache-2.0

// Package cdi holds pkg/cdiregistry to upstream's CDI cache: the same files
// accepted and refused, the same devices found, with the same edits. Where
// Jackfield differs on purpose, [Allowed] says so, and docs/cdi.md gives the
// reason.
package cdi
