// SPDX-License-Identifier: Apache-2.0

// Command benchreport runs the benchmarks beside their peers and writes what they
// say into docs/performance.md, between markers, and docs/images/*.svg. It is what
// `make bench` runs.
//
// A benchmark gets into the tables by a line in sections.go; one that has no line
// there is listed below the others as it reports itself. A benchmark that is not
// there, or is skipped on this machine, leaves its row out, and the reason is
// printed; one that fails makes the command fail, after what the others say was
// written.
//
// Its invariant: a ratio is between two figures of one run of this command.
package main
