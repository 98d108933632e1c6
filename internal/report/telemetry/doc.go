// SPDX-License-Identifier: Apache-2.0

// Package telemetry counts the work of the NRI plugin and exposes the counts as Prometheus
// metrics, in a registry of its own.
//
// Its invariant: counting never fails and never blocks, and the number of time series is
// bounded. Only adapters and commands import it.
package telemetry
