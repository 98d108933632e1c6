// SPDX-License-Identifier: Apache-2.0

// Package monitoring checks that deploy/monitoring, its documentation and the program agree: the
// program exposes every metric that a rule, a dashboard or a page names, and promtool accepts the
// rules and the metrics.
package monitoring
