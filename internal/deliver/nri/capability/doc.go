// SPDX-License-Identifier: Apache-2.0

// Package capability says which edits the NRI of a runtime can deliver, by its version. It is apart
// from package nri, so that a program that only asks does not link NRI.
package capability
