// SPDX-License-Identifier: Apache-2.0

// Package capability determines which edits the NRI of a runtime can deliver, by its version. It is not part of
// package nri, so that a program that only checks edits does not link NRI.
package capability
