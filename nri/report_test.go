// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/telemetry"
)

// A pod's author chooses how many optional requests fail, and not how many lines the log
// gets.
func TestTheLogHasTheFirstRequestsOfAContainer(t *testing.T) {
	buf := &logBuffer{}
	log := logrus.New()
	log.SetOutput(buf)
	items := make([]resolve.Item, 1000)
	for i := range items {
		items[i] = resolve.Item{Request: fmt.Sprintf("request %d.", i), Outcome: resolve.Skipped, Reason: "not found", Audit: "refused"}
	}
	items = append(items, resolve.Item{Request: "injected", Outcome: resolve.Injected, Notes: make([]string, 100)})
	logPlan(logrus.NewEntry(log), items)
	text := buf.String()
	if n := strings.Count(text, "\n"); n != maxLogged+2 {
		t.Errorf("the log has %d lines, want the first %d, one for the others, and one for what was injected", n, maxLogged)
	}
	for _, want := range []string{"request 0.", "request 7.", "and 2084 more lines", "injected from"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not have %q", want)
		}
	}
}

// Metrics go by what a request is for, and not by what messages call it.
func TestRequestsAreCountedByTheirKind(t *testing.T) {
	for kind, want := range map[resolve.RequestKind]telemetry.Source{
		resolve.KindCDI: telemetry.SourceCDI, resolve.KindNetwork: telemetry.SourceNetwork, resolve.KindResource: telemetry.SourceResource,
		resolve.KindHook: telemetry.SourceHook, resolve.KindDeviceInjector: telemetry.SourceDeviceInjector,
	} {
		if got := sourceOf(&resolve.Item{Kind: kind, Request: `CDI device "vendor.com/net=a"`}); got != want || got.String() != string(kind) {
			t.Errorf("%s counts as %s", kind, got)
		}
	}
}
