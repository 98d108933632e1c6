// SPDX-License-Identifier: Apache-2.0

// Package telemetry counts what the adapters do and writes the counts in Prometheus'
// text format.
//
// Its invariant: counting never fails and never waits, and allocates nothing but for
// the first refusal by a rule. Only adapters and commands import it.
//
// The format is written here and not by Prometheus' client library: a plugin that is
// idle on every node keeps its memory small, and Prometheus' own tool checks in the
// tests that it reads what is written.
package telemetry
