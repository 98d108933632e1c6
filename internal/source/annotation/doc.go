// SPDX-License-Identifier: Apache-2.0

// Package annotation parses the requests to Jackfield in a pod's annotations.
//
// The functions are pure: the same annotations and the same container yield the same requests or
// the same error. Annotations are untrusted. An unknown key in the jackfield.dev domain is an
// error, because a mistyped key would otherwise start a container without its device.
//
// The grammar is described in docs/reference/annotations.md.
package annotation
