// SPDX-License-Identifier: Apache-2.0

// Package devices reads devices.json, the file by which Jackfield tells a container which devices and
// sockets it has. It imports the standard library only.
//
// Unknown keys are ignored. A file that is too large, malformed, or of another major version of the
// Device Information Specification is an error.
package devices
