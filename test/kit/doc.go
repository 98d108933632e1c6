// SPDX-License-Identifier: Apache-2.0

// Package kit builds the programs of docs/how-to/read-devices-in-a-program.md, which use the tenant's kit, and
// has the tests that compare the kit's readers in Go, Python and C.
package kit
