// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

func TestTenantCannotFillLog(t *testing.T) {
	for name, tc := range map[string]struct {
		tenant bool
		lines  int
	}{"tenant": {true, 1}, "host": {false, 16}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &logBuffer{}
				log := logrus.New()
				log.SetOutput(out)
				e := newStagingEvents(&daemon{log: logrus.NewEntry(log), counters: telemetry.NewCounters()})
				for range 5000 { // for half a second
					e.Failed("/run/vsw/a.sock", tc.tenant, errors.New("busy"))
					e.Rebound(staging.Rebound{Socket: "/run/vsw/a.sock", Tenant: tc.tenant, Again: 1})
					time.Sleep(100 * time.Microsecond)
				}
				if n := strings.Count(out.String(), "\n"); n != tc.lines {
					t.Errorf("%d lines of 10,000 events, want %d", n, tc.lines)
				}
				e.Failed("/run/vsw/b.sock", tc.tenant, errors.New("busy"))
				if n := strings.Count(out.String(), "\n"); n != tc.lines+1 {
					t.Errorf("%d lines after an event of another socket, want %d", n, tc.lines+1)
				}
				time.Sleep(6 * time.Second)
				synctest.Wait()
				if text := out.String(); strings.Count(text, "repeats=") != 1 {
					t.Errorf("the repetitions are not reported once: %s", text)
				}
				if n := e.counters.StagingFailed.Load(); n != 5001 {
					t.Errorf("%d failures are counted, want 5001", n)
				}
			})
		})
	}
}
