// SPDX-License-Identifier: Apache-2.0

// Package telemetry counts what the adapters do.
//
// Its invariant: counting never fails, never blocks and never allocates. Only
// adapters and commands import it.
package telemetry
