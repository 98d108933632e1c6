// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/report/status"
)

// The log levels are those of the usage; the logger has more.
func TestLogLevelsAreThoseOfUsage(t *testing.T) {
	for _, level := range []string{"error", "warning", "info", "debug"} {
		if _, err := newLogger(io.Discard, level, "json"); err != nil {
			t.Errorf("%s: %v", level, err)
		}
	}
	for _, level := range []string{"panic", "Fatal", "trace", "", "all"} {
		if _, err := newLogger(io.Discard, level, "json"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", level, err)
		}
	}
}

// systemd's unit is of Type=notify: the plugin counts as started when it has its configuration,
// with a runtime or without, and not with a faulty configuration.
func TestSystemdIsNotifiedOfStart(t *testing.T) {
	for config, want := range map[string]string{"policy: {mode: enforce}\n": "READY=1", "polciy: {}\n": ""} {
		root := t.TempDir()
		file, socket := filepath.Join(root, "config.yaml"), filepath.Join(root, "notify")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer systemd.Close()
		getenv := func(name string) string {
			if name == "NOTIFY_SOCKET" {
				return socket
			}
			return ""
		}
		ctx, cancel := context.WithCancel(t.Context())
		cmd := Command(getenv, io.Discard)
		cmd.SetArgs([]string{"--root", root, "--config", file, "--nri-socket", filepath.Join(root, "nri.sock")})
		ended := make(chan error, 1)
		go func() {
			err := cmd.ExecuteContext(ctx)
			if want == "" {
				systemd.SetReadDeadline(time.Now()) // all notifications have been sent
			}
			ended <- err
		}()
		buffer := make([]byte, 100)
		n, err := systemd.Read(buffer)
		if got := string(buffer[:n]); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: systemd receives %q, %v, want %q", config, got, err, want)
		}
		cancel()
		if err := <-ended; (err == nil) != (want != "") {
			t.Errorf("%s: Run returns %v", config, err)
		}
	}
}

func TestProbeReportsStatusOfPlugin(t *testing.T) {
	status := http.StatusOK
	plugin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, "answer of "+r.URL.Path+"\n")
	}))
	defer plugin.Close()
	for _, tc := range []struct {
		url    string
		status int
		out    string
		fault  string
	}{
		{plugin.URL + "/readyz", 200, "answer of /readyz\n", ""},
		{plugin.URL + "/readyz", 503, "answer of /readyz\n", "503"},
		{"127.0.0.1:9480/readyz", 200, "", "--probe"},
		{"http://" + closedAddress(t) + "/readyz", 200, "", "connection refused"},
	} {
		status = tc.status
		var out strings.Builder
		cmd := Command(func(string) string { return "" }, io.Discard)
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--probe", tc.url})
		err := cmd.ExecuteContext(t.Context())
		if (err == nil) != (tc.fault == "") || err != nil && !strings.Contains(err.Error(), tc.fault) ||
			out.String() != tc.out {
			t.Errorf("%s, %d: prints %q and ends with %v, want %q", tc.url, tc.status, out.String(), err, tc.out)
		}
	}
}

// closedAddress returns an address without a listener.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// An error in the command line is a usage error, which has another exit status.
func TestCommandLineIsUsageError(t *testing.T) {
	for _, tc := range []struct {
		args  []string
		usage bool
	}{
		{[]string{"--bogus"}, true},
		{[]string{"argument"}, true},
		{[]string{"--root", "/does/not/exist"}, false},
	} {
		cmd := Command(func(string) string { return "" }, io.Discard)
		cmd.SetArgs(tc.args)
		err := cmd.ExecuteContext(t.Context())
		var usage *UsageError
		if err == nil || errors.As(err, &usage) != tc.usage {
			t.Errorf("%q: %v", tc.args, err)
		}
	}
}

func TestVersionIsOneLine(t *testing.T) {
	var out strings.Builder
	cmd := Command(func(string) string { return "" }, io.Discard)
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--version"})
	want := regexp.MustCompile(`^jackfield-nri \S+( \([0-9a-f]+(\+changes)?\))? go1\S+\n$`)
	if err := cmd.ExecuteContext(t.Context()); err != nil || !want.MatchString(out.String()) {
		t.Errorf("%v, %q", err, out.String())
	}
}

// The name typed on a terminal starts no daemon.
func TestCommandWithoutFlagsOnTerminalIsRefused(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	testkit.Must(t, err)
	defer terminal.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	cmd := Command(func(string) string { return "" }, io.Discard)
	cmd.SetArgs([]string{})
	cmd.SetIn(terminal)
	var usage *UsageError
	if err := cmd.ExecuteContext(ctx); !errors.As(err, &usage) || !strings.Contains(err.Error(), "--help") {
		t.Errorf("ends with %v", err)
	}
}

// A second daemon of a state directory is refused, and takes nothing from the first.
func TestOneDaemonPerStateDirectory(t *testing.T) {
	h := newReloadHost(t, granting, false)
	host := h.p.opts.Host
	socket := host.Path(status.Socket(h.p.config.core.Load().cfg.StateDir))
	before, err := os.Stat(socket)
	testkit.Must(t, err)
	log := logrus.New()
	log.SetOutput(io.Discard)
	second, err := New(Options{Host: host, Config: h.p.config.core.Load().cfg}, log)
	want := fmt.Sprintf("process %d is the daemon", os.Getpid())
	if !errdefs.IsConflict(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("New returns %v, want %q", err, want)
	}
	if second != nil {
		testkit.Must(t, second.Close())
	}
	if after, err := os.Stat(socket); err != nil || !os.SameFile(before, after) {
		t.Errorf("the status socket of the first daemon is gone: %v", err)
	}
	testkit.Must(t, os.Remove(socket))
	if !testkit.Until(func() bool {
		_, err := status.Get(t.Context(), host, h.p.config.core.Load().cfg.StateDir)
		return err == nil
	}) {
		t.Error("the status socket was removed and is not created again")
	}
}

// The first line of the log has the configuration file, the number of rules and the socket roots.
func TestStartLogsConfiguration(t *testing.T) {
	h := newReloadHost(t, granting, false)
	fields := startFields(h.p)
	if fields["config"] != "/etc/jackfield/config.yaml" || fields["rules"] != 1 || fields["roots"] == nil {
		t.Errorf("logged %v", fields)
	}
}
