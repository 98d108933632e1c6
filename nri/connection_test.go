// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// The plugin connects within connectInterval after the runtime listens, however long the runtime was
// down. The runtime creates its socket before it listens. The test uses the clock of synctest.
func TestConnectionFollowsRuntimeAtOnce(t *testing.T) {
	const ms = time.Millisecond
	for _, away := range []time.Duration{ms, 3*time.Second + 7*ms, time.Hour + 3*ms} {
		synctest.Test(t, func(t *testing.T) {
			listens := time.Now().Add(away)
			created := make(chan struct{}, 1)
			time.AfterFunc(away-away/1000, func() { created <- struct{}{} })
			conn := dialUntilConnected(t.Context(), func() (net.Conn, error) {
				if time.Now().Before(listens) {
					return nil, errors.New("connection refused")
				}
				return &net.UnixConn{}, nil
			}, created, func(error) {})
			if late := time.Since(listens); conn == nil || late > connectInterval {
				t.Errorf("away for %v: connected %v later, want within %v", away, late, connectInterval)
			}
		})
	}
	if connectInterval > 40*time.Millisecond {
		t.Errorf("the interval is %v; docs/how-to/require-the-plugin.md promises 40 ms", connectInterval)
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
	}, nil, func(error) {})
	if conn != nil || attempts != 3 {
		t.Errorf("got %v after %d attempts", conn, attempts)
	}
}

// A node without a runtime has few attempts after the first minute, and connects a second after a runtime
// whose socket's directory cannot be watched.
func TestConnectionAttemptsBecomeFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, attempts := time.Now(), 0
		conn := dialUntilConnected(t.Context(), func() (net.Conn, error) {
			if time.Since(began) > quickPeriod {
				attempts++
			}
			if time.Since(began) > time.Hour {
				return &net.UnixConn{}, nil
			}
			return nil, errors.New("no such file or directory")
		}, nil, func(error) {})
		if late := time.Since(began) - time.Hour; conn == nil || late > idleInterval || attempts > 3600 {
			t.Errorf("connected %v after an hour, with %d attempts after the first minute", late, attempts)
		}
	})
}

// The directory of the runtime's socket need not exist when the plugin starts.
func TestRuntimesSocketIsWatched(t *testing.T) {
	dir := t.TempDir()
	r := &runtimeLink{daemon: &daemon{log: logrus.NewEntry(logrus.New())}}
	created, stop := r.watchSocket(dir + "/nri/nri.sock")
	defer stop()
	await := func(what string) {
		t.Helper()
		select {
		case <-created:
		case <-time.After(10 * time.Second):
			t.Fatalf("no event after %s was created", what)
		}
	}
	if err := os.Mkdir(dir+"/nri", 0o755); err != nil {
		t.Fatal(err)
	}
	await("the directory")
	listener, err := net.Listen("unix", dir+"/nri/nri.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	await("the socket")
}

// Without NRI there is a log line a minute, with a hint, and not one for each attempt. Another
// reason is logged at once.
func TestConnectionWarningsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logBuffer // the throttle's timer also writes
		log := logrus.New()
		log.SetOutput(&out)
		w := &runtimeLink{daemon: &daemon{log: logrus.NewEntry(log), counters: telemetry.NewCounters()}}
		lines := func() int { return strings.Count(out.String(), "\n") }
		for end := time.Now().Add(10*time.Minute - time.Second); time.Now().Before(end); time.Sleep(connectInterval) {
			w.logFailure(errors.New("no such file or directory"))
		}
		if n := lines(); n != 10 {
			t.Errorf("%d lines in ten minutes, want 10:\n%s", n, out.String())
		}
		if !strings.Contains(out.String(), "jackfield doctor") {
			t.Errorf("no hint in:\n%s", out.String())
		}
		w.logFailure(errors.New("connection refused"))
		w.logFailure(errors.New("connection refused"))
		if n := lines(); n != 11 {
			t.Errorf("%d lines after another reason, want 11", n)
		}
		w.markRegistered()
		w.logFailure(errors.New("connection refused"))
		if n := lines(); n != 12 {
			t.Errorf("%d lines after a registration, want 12", n)
		}
	})
}

// The stub finds an NRI version in the request, and does not warn about a runtime's version without
// a leading v.
func TestConfigureWithoutNRIVersion(t *testing.T) {
	for _, tc := range []struct{ runtime, version, nri, want string }{
		{"cri-o", "1.35.6", "", "v0.11.0"},
		{"cri-o", "1.31.13", api.UnknownVersion, "v0.6.1"},
		{"containerd", "1.7.24~ds1", "", "v0.6.1"},
		{"containerd", "v2.4.2", "v0.12.3", "v0.12.3"},
		{"other", "1.0.0", "", ""},
	} {
		unmarshal := func(v any) error {
			req := v.(*api.ConfigureRequest)
			req.RuntimeName, req.RuntimeVersion, req.NRIVersion = tc.runtime, tc.version, tc.nri
			return nil
		}
		method := func(_ context.Context, unmarshal func(any) error) (any, error) {
			var req api.ConfigureRequest
			err := unmarshal(&req)
			return req.NRIVersion, err
		}
		got, err := addNRIVersion(t.Context(), unmarshal, nil, method)
		if err != nil || got != tc.want {
			t.Errorf("%s %s with NRI %q: found %q, %v, want %q", tc.runtime, tc.version, tc.nri, got, err, tc.want)
		}
	}
}
