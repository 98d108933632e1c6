// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

// However long the runtime was away, the plugin is connected within connectInterval of
// its return. The clock is synctest's.
func TestConnectionFollowsRuntimeAtOnce(t *testing.T) {
	for _, away := range []time.Duration{time.Millisecond, 3*time.Second + 7*time.Millisecond, time.Hour + 3*time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			listens := time.Now().Add(away)
			conn := dialUntilConnected(t.Context(), func() (net.Conn, error) {
				if time.Now().Before(listens) {
					return nil, errors.New("connection refused")
				}
				return &net.UnixConn{}, nil
			}, func(error) {})
			if late := time.Since(listens); conn == nil || late > connectInterval {
				t.Errorf("away for %v: connected %v later, want within %v", away, late, connectInterval)
			}
		})
	}
	if connectInterval > 40*time.Millisecond {
		t.Errorf("the interval is %v; docs/security.md promises 40 ms", connectInterval)
	}
}

func TestConnectionAttemptsEndWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	attempts := 0
	conn := dialUntilConnected(ctx, func() (net.Conn, error) {
		if attempts++; attempts == 3 {
			cancel()
		}
		return nil, errors.New("no such file or directory")
	}, func(error) {})
	if conn != nil || attempts != 3 {
		t.Errorf("got %v after %d attempts", conn, attempts)
	}
}

// A runtime without NRI costs a log line a minute, with a hint, and not one for each
// attempt; another reason is logged at once.
func TestConnectionWarningsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := logrus.New()
		log.SetOutput(io.Writer(&out))
		w := &connectionWarnings{log: logrus.NewEntry(log)}
		lines := func() int { return strings.Count(out.String(), "\n") }
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(connectInterval) {
			w.warn(errors.New("no such file or directory"))
		}
		if n := lines(); n != 10 {
			t.Errorf("%d lines in ten minutes, want 10:\n%s", n, out.String())
		}
		if !strings.Contains(out.String(), "jackfield doctor") {
			t.Errorf("no hint in:\n%s", out.String())
		}
		w.warn(errors.New("connection refused"))
		w.warn(errors.New("connection refused"))
		if n := lines(); n != 11 {
			t.Errorf("%d lines after another reason, want 11", n)
		}
		w.reset()
		w.warn(errors.New("connection refused"))
		if n := lines(); n != 12 {
			t.Errorf("%d lines after a registration, want 12", n)
		}
	})
}
