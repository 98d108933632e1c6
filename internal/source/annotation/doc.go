// SPDX-License-Identifier: Apache-2.0

// Package annotation parses what a pod requests of Jackfield in its annotations.
//
// The functions are pure: the same annotations and the same container give the same requests, or
// the same error. Nothing in the annotations is trusted. An unknown key below the jackfield.dev
// domain is an error, because a mistyped key would otherwise be a container without its device.
//
// The grammar is described in docs/reference/annotations.md.
package annotation
