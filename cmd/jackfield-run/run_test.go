// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/pkg/devices"
)

func parse(t *testing.T, text string) []devices.Device {
	t.Helper()
	list, err := devices.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

const file = `[
  {"name": "a", "interface": "net1", "device-info": {"type": "vhost-user", "version": "1.1.0", "vhost-user": {"path": "/a b"}}, "jackfield": {"eal": ["--vdev=x,path=/a b"]}},
  {"name": "b", "interface": "net2", "device-info": {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.1"}}, "jackfield": {"eal": ["-a", "0000:03:00.1"]}},
  {"name": "socket:db", "jackfield": {"socket": "/db"}}
]`

func TestArgumentsAreExpanded(t *testing.T) {
	t.Setenv("OWN", "own value")
	t.Setenv("JACKFIELD_NET1_SOCKET", "of an earlier start")
	got, err := expandArguments(parse(t, file), []string{"app", "-l", "2", "$(JACKFIELD_NET1_EAL)", "$(JACKFIELD_EAL)", "--db=$(JACKFIELD_SOCKET_DB)", "$(JACKFIELD_NET1_SOCKET)",
		"x $(JACKFIELD_NET2_EAL)", "$(OWN)", "$(UNKNOWN)", "$$(OWN)", "$$(JACKFIELD_EAL)", "$(OWN", "$OWN", "$()", "$(OWN)$(OWN)"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"app", "-l", "2", "--vdev=x,path=/a b", "--vdev=x,path=/a b", "-a", "0000:03:00.1", "--db=/db", "/a b",
		"x -a 0000:03:00.1", "own value", "$(UNKNOWN)", "$(OWN)", "$(JACKFIELD_EAL)", "$(OWN", "$OWN", "$()", "own valueown value"}, got); d != "" {
		t.Error(d)
	}
	if got := os.Getenv("JACKFIELD_NET2_PCI"); got != "0000:03:00.1" {
		t.Errorf("the program's environment has JACKFIELD_NET2_PCI=%q", got)
	}
}

func TestMissingDeviceIsReported(t *testing.T) {
	for arg, want := range map[string]string{
		"$(JACKFIELD_NET9_EAL)": "the container has no variable JACKFIELD_NET9_EAL",
		"x$(JACKFIELD_EAL)":     "must be an argument of its own",
		// A text with an argument that has a space would be split in the wrong place.
		"x$(JACKFIELD_NET1_EAL)": "the container has no variable JACKFIELD_NET1_EAL",
	} {
		if got, err := expandArguments(parse(t, file), []string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", arg, got, err, want)
		}
	}
}

func TestRunReportsFaultsByExitStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devices.json")
	t.Setenv(devices.FileVariable, path)
	missing := func(want int, args ...string) {
		t.Helper()
		if got, err := run(args); got != want || err == nil {
			t.Errorf("%q: status %d, %v; want %d", args, got, err, want)
		}
	}
	missing(exitUsage)
	missing(exitUsage, "--nope", "true")
	missing(exitUsage, "--wait", "soon", "true")
	missing(exitFailed, "true")
	if err := os.WriteFile(path, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing(exitNotFound, "jackfield-no-such-program")
	missing(exitNotFound, "/no/such/program")
	missing(exitNotRunnable, path)
	missing(exitFailed, "true", "$(JACKFIELD_NET1_EAL)")
	for _, arg := range []string{"--version", "--help"} {
		if status, err := run([]string{arg}); status != 0 || err != nil {
			t.Errorf("%s: %d, %v", arg, status, err)
		}
	}
}

// entry is a file with one device that has a socket.
func entry(socket, creator string) string {
	return `[{"name":"n","device-info":{"type":"memif","version":"1.1.0","memif":{"path":"` + socket + `"}},"jackfield":{"socket-created-by":"` + creator + `"}}]`
}

// listen serves a socket and returns its path. A crashed server leaves the file.
func listen(t *testing.T, path string, crash bool) string {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if crash {
		l.Close()
	} else {
		t.Cleanup(func() { l.Close() })
	}
	return path
}

func TestWaitEndsWhenSocketIsServed(t *testing.T) {
	dir := t.TempDir()
	served := listen(t, filepath.Join(dir, "served"), false)
	stale := listen(t, filepath.Join(dir, "stale"), true)
	for _, list := range []string{"[]", entry(served, "host"), entry("@abstract", "host"), entry(stale, "application")} {
		if err := waitForSockets(parse(t, list), time.Minute); err != nil {
			t.Errorf("%s: %v", list, err)
		}
	}
	missing := filepath.Join(dir, "missing")
	for socket, want := range map[string]string{stale: stale + " within 1ms", missing: missing + ": no such file", dir: "is not a socket"} {
		if err := waitForSockets(parse(t, entry(socket, "host")), time.Millisecond); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", socket, err)
		}
	}
	late := filepath.Join(dir, "late")
	done := make(chan error, 1)
	list := parse(t, entry(late, "host"))
	go func() { done <- waitForSockets(list, time.Hour) }()
	listen(t, late, false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestOnlyStaleSocketsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	served := listen(t, filepath.Join(dir, "served"), false)
	stale := listen(t, filepath.Join(dir, "stale"), true)
	ofHost := listen(t, filepath.Join(dir, "host"), true)
	for _, list := range []string{entry(stale, "application"), entry(stale, "application"), entry(ofHost, "host"), entry("@abstract", "application")} {
		if err := removeStaleSockets(parse(t, list)); err != nil {
			t.Errorf("%s: %v", list, err)
		}
	}
	if _, err := os.Lstat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stale socket exists: %v", err)
	}
	if _, err := os.Lstat(ofHost); err != nil {
		t.Error(err)
	}
	for _, path := range []string{served, dir} {
		if err := removeStaleSockets(parse(t, entry(path, "application"))); err == nil {
			t.Errorf("%s: no error", path)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}
