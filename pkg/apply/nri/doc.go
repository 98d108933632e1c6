// SPDX-License-Identifier: Apache-2.0

// Package nri turns a set of edits into an NRI container adjustment.
//
// Its invariant: an adjustment carries every edit of the set in raw form, or
// there is an error; what the runtime's NRI version has no field for is never
// sent, because an older runtime drops a newer field silently. The package does
// no I/O.
package nri
