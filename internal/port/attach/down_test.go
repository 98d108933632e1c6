// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// stoppedSwitch is a switch that ends after Probe, if down is set.
type stoppedSwitch struct {
	down    bool
	removed int
}

func (s *stoppedSwitch) err() error {
	if s.down {
		return &vswitch.UnavailableError{Switch: "s", Endpoint: "/run/s", Err: errors.New("connection refused"), Down: true}
	}
	return nil
}

func (s *stoppedSwitch) Probe(context.Context) error { return nil }

func (s *stoppedSwitch) Ensure(_ context.Context, p vswitch.Port) (vswitch.Port, error) {
	return p, s.err()
}

func (s *stoppedSwitch) Remove(context.Context, vswitch.Owner) error {
	s.removed++
	return s.err()
}

func (s *stoppedSwitch) List(context.Context) ([]vswitch.Port, error) { return nil, s.err() }

func (t *Attachment) records(tb testing.TB) []record.Key {
	tb.Helper()
	st, err := t.findRecords()
	if err != nil || st == nil {
		tb.Fatal(err)
	}
	defer st.Close()
	keys, err := st.Keys()
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// A switch that stops before ADD connects to it has no port, so ADD undoes everything.
func TestAddUndoesAllIfPortWasNeverRequested(t *testing.T) {
	a := newPortRequest(t, &stoppedSwitch{down: true})
	err := a.Add(t.Context(), noAddresses, func(*deviceinfo.Info) error { return nil })
	if err == nil || AsError(err).Code != codeLater || !strings.Contains(AsError(err).Details, "start the vswitch, or correct vswitches.s.endpoint") {
		t.Errorf("Add: %v", err)
	}
	if left := a.records(t); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// DEL goes on while a switch is down that forgets its ports when it ends. Open vSwitch keeps them.
func TestRemoveWhileSwitchIsDown(t *testing.T) {
	for kind, succeeds := range map[string]bool{"grout": true, "vpp": true, "ovs": false} {
		s := &stoppedSwitch{}
		a := newPortRequest(t, s)
		file := filepath.Join(a.Root.Path("/"), "etc/jackfield/config.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), "type: ovs", "type: "+kind, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := a.Add(t.Context(), noAddresses, func(*deviceinfo.Info) error { return nil }); err != nil {
			t.Fatal(err)
		}
		s.down = true
		if err := a.Remove(t.Context()); (err == nil) != succeeds {
			t.Errorf("%s: Remove: %v", kind, err)
		}
		if left := len(a.records(t)); (left == 0) != succeeds {
			t.Errorf("%s: %d records are left", kind, left)
		}
	}
}

// An attachment whose record was lost can have a port. Remove searches for it, but not for the port of another record.
func TestRemoveWithoutRecordRemovesPort(t *testing.T) {
	s := &stoppedSwitch{}
	a := newPortRequest(t, s)
	if err := a.Remove(t.Context()); err != nil || s.removed != 1 {
		t.Errorf("%v, %d calls", err, s.removed)
	}
	if err := a.Add(t.Context(), noAddresses, func(*deviceinfo.Info) error { return nil }); err != nil {
		t.Fatal(err)
	}
	a.Network = "other"
	if err := a.Remove(t.Context()); err != nil || s.removed != 1 {
		t.Errorf("port of another record: %v, %d calls", err, s.removed)
	}
}
