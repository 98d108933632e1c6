// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestMetricsAndAudit(t *testing.T) {
	for _, good := range []string{"", "127.0.0.1:9480", ":9480", "[::1]:1", "unix:/run/jackfield/metrics.sock"} {
		c, err := Parse([]byte("metrics: {listen: \""+good+"\", pprof: true}\naudit: {file: /var/log/jackfield/audit.log}\n"), "c.yaml")
		if err != nil {
			t.Errorf("%q: %v", good, err)
			continue
		}
		if c.Metrics != (Metrics{good, true}) || c.AuditLog.File != "/var/log/jackfield/audit.log" {
			t.Errorf("%q: read %+v, %+v", good, c.Metrics, c.AuditLog)
		}
	}
	for bad, want := range map[string]string{
		"metrics: {listen: \"9480\"}":                                   "must be HOST:PORT",
		"metrics: {listen: \":0\"}":                                     "port",
		"metrics: {listen: \":http\"}":                                  "port",
		"metrics: {listen: \"unix:metrics.sock\"}":                      "absolute path behind unix:",
		"metrics: {listen: \"unix:/" + strings.Repeat("x", 107) + "\"}": "107 bytes",
		"metrics: {listen: 9480}":                                       "must be a string",
		"metrics: {pprof: \"yes\"}":                                     "true or false",
		"audit: {file: audit.log}":                                      "absolute path",
	} {
		if _, err := Parse([]byte(bad), "c.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}
