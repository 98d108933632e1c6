// SPDX-License-Identifier: Apache-2.0

// Package monitoring holds deploy/monitoring, the pages about it and the program
// to each other: every metric that a rule, a dashboard or a page names is one that
// the program exposes, and Prometheus' own tool takes the rules and the metrics.
package monitoring
