// SPDX-License-Identifier: Apache-2.0

// Package record holds the records of network attachments. The CNI and netavark plugins write
// them. The NRI plugin reads them to re-create ports that a vswitch has lost.
//
// Invariant: a record is on disk before anything of its attachment is created, and is removed after everything
// else. Records survive a kill and a power failure as a whole or not at all.
package record
