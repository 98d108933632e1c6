// SPDX-License-Identifier: Apache-2.0

package policyeval

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/status"
)

// A container is counted once, however many of its requests the log cuts short.
func TestSuggestCountsIncompleteContainers(t *testing.T) {
	cut := status.Request{Asked: make([]policy.Asked, engine.MaxAsked)}
	var log bytes.Buffer
	for _, c := range []status.Container{
		{More: "1 request", Requests: []status.Request{cut, cut}},
		{Requests: []status.Request{cut, {}}},
		{Requests: []status.Request{{}}},
	} {
		line := struct {
			Time time.Time `json:"time"`
			status.Container
		}{time.Unix(1e9, 0), c}
		if err := json.NewEncoder(&log).Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	var l AuditLog
	if err := l.Read(&log); err != nil || l.Broken != 0 || l.Incomplete != 2 {
		t.Errorf("%d containers are incomplete, want 2; %d lines are broken, %v", l.Incomplete, l.Broken, err)
	}
}
