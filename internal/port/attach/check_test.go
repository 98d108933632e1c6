// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// onePortSwitch has the port that was created last.
type onePortSwitch struct{ port vswitch.Port }

func (s *onePortSwitch) Ensure(_ context.Context, p vswitch.Port) (vswitch.Port, error) {
	s.port = p
	return p, nil
}

func (s *onePortSwitch) Remove(context.Context, vswitch.Owner) error { return nil }

func (*onePortSwitch) Probe(context.Context) error { return nil }

func (s *onePortSwitch) List(context.Context) ([]vswitch.Port, error) {
	return []vswitch.Port{s.port}, nil
}

// A port of VPP and grout exists without a bridge, too.
func TestCheckReportsPortOnNoBridge(t *testing.T) {
	s := &onePortSwitch{}
	a := newPortRequest(t, s)
	if err := a.Add(t.Context(), noAddresses, func(*deviceinfo.Info) error { return nil }); err != nil {
		t.Fatal(err)
	}
	check := func() error {
		r, err := a.ReadRecord()
		if err != nil {
			t.Fatal(err)
		}
		return a.Check(t.Context(), r, func(*deviceinfo.Info, []string) error { return nil })
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	s.port.Bridge = ""
	if err := check(); err == nil || AsError(err).Code != CodeChanged || !strings.Contains(AsError(err).Details, "bridge") {
		t.Errorf("found %v", err)
	}
}

// A vswitch has its rate in kilobits a second.
func TestCheckReportsChangedRate(t *testing.T) {
	s := &onePortSwitch{}
	a := newPortRequest(t, s)
	a.Port.Rate = 1_000_500
	if err := a.Add(t.Context(), noAddresses, func(*deviceinfo.Info) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for rate, changed := range map[uint64]bool{1_001_000: false, 5_000_000: true, 0: true} {
		s.port.Rate = rate
		r, err := a.ReadRecord()
		if err != nil {
			t.Fatal(err)
		}
		err = a.Check(t.Context(), r, func(*deviceinfo.Info, []string) error { return nil })
		if (err != nil) != changed || changed && !strings.Contains(AsError(err).Details, "rate of port") {
			t.Errorf("rate %d: %v", rate, err)
		}
	}
}
