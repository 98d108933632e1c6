// SPDX-License-Identifier: Apache-2.0

// Package oci turns a set of edits into changes of an OCI runtime specification,
// as a value of runtime-spec or as the text of a config.json.
//
// Its invariant: every edit of the set is in the result, or there is an error and
// nothing was changed. A set that was resolved against [Existing] can be applied
// again: what is there already is not there twice. In a text, whatever the edits
// do not reach stays as it is, byte for byte, fields that nobody knows among it.
// The package does no I/O. It reads a container's state, too, which is of the same
// specification.
package oci
