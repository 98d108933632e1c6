// SPDX-License-Identifier: Apache-2.0

// Command benchreport runs the benchmarks beside their peers and writes the results into
// docs/contributing/performance.md, between markers, and into docs/images/*.svg. `make bench` runs it.
//
// sections.go lists the benchmarks and the rows of the tables. If a benchmark is missing, or skipped on
// this machine, its row is omitted and the reason printed. If one fails, the command writes the results
// of the others and fails.
//
// Invariant: a ratio is between two figures of one run of this command.
package main
