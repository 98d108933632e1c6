// SPDX-License-Identifier: Apache-2.0

// Package annotation reads what a pod asks of Jackfield in its annotations.
//
// Invariant: a pure function of its arguments. The same annotations and the
// same container give the same ordered, de-duplicated requests, or the same
// error, every time; nothing is read but the map, and nothing in the map is
// trusted. Nothing a person may have meant for Jackfield is passed over in
// silence: a key below the jackfield.dev domain that is not one of Jackfield's
// is an error, because a mistyped key would otherwise be a container without
// its device.
//
// The grammar is described in docs/annotations.md.
package annotation
