// SPDX-License-Identifier: Apache-2.0

// Package nri turns a set of edits into an NRI container adjustment.
//
// An adjustment carries every edit of the set, or there is an error. A field that the runtime's NRI
// version does not have is never sent, because an older runtime drops it silently. The package does
// no I/O.
package nri
