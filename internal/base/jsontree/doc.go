// SPDX-License-Identifier: Apache-2.0

// Package jsontree parses JSON (RFC 8259) into a tree in which every value has its line
// and column. CDI spec files, device-info files, Multus' cache, CNI configurations and results, networks of
// Podman, and OCI configurations and states are read with it, so that their errors name the place of a fault. [Stream]
// reads device metadata of DRA drivers, which is a sequence of values.
//
// It is stricter than encoding/json: the text must be valid UTF-8, nesting is bounded, and
// duplicate keys are kept in the tree, so that the caller can report them.
package jsontree
