// SPDX-License-Identifier: Apache-2.0

// Package record stores the records of network attachments. The CNI and netavark plugins write
// them. The NRI plugin reads them to re-create ports that a vswitch has lost.
//
// Invariant: a record is on disk before any object of its attachment is created, and is removed
// after all of them. A kill or a power failure leaves a record complete or absent, never truncated.
package record
