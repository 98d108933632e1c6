// SPDX-License-Identifier: Apache-2.0

// Package hook is the OCI hook door: what jackfield-hook does at precreate,
// createRuntime, prestart and poststop.
//
// Its invariants: a container that asks for nothing is left as it is; what was
// asked for is delivered, or the container does not start, and the reason is what
// the runtime prints; what was made on the host goes at poststop. Nothing is taken
// from the environment, and nothing of the image is read or run.
package hook
