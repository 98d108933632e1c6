// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// A sweep removes everything of a removed sandbox, and nothing of others.
func TestSweepRemovesAllOfSandbox(t *testing.T) {
	for _, state := range []string{"intact", "in a listed stateDir", "no record", "damaged record"} {
		a, stateDir := newPortRequest(t, &stoppedSwitch{}), DefaultStateDir
		if state == "in a listed stateDir" {
			stateDir = config.Default().CNI.StateDirs[0]
			a.StateDir = stateDir
		}
		a.Port, a.InfoDir = PortRequest{}, deviceinfo.DefaultCNIDir
		a.IPAM = &record.IPAM{Type: "lease", Path: "/bin", Config: []byte(`{}`)}
		other := *a
		other.ContainerID = "c2"
		for _, one := range []*Attachment{a, &other} {
			one.ClaimsDir = "/run/jackfield/claims"
			if err := one.Add(t.Context(), noAddresses, func(*deviceinfo.Info) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		root := a.Root.Path("/")
		recordFile := filepath.Join(root, stateDir, a.FileName())
		switch state {
		case "no record":
			if err := os.Remove(recordFile); err != nil {
				t.Fatal(err)
			}
		case "damaged record":
			if err := os.Truncate(recordFile, 0); err != nil {
				t.Fatal(err)
			}
		}
		var released []record.Key
		s := &Sweeper{Root: a.Root, Config: config.Default(), Log: io.Discard, Program: "test",
			Release: func(_ context.Context, key record.Key, _ *record.IPAM) error {
				released = append(released, key)
				return nil
			}}
		if err := s.RemoveSandbox(t.Context(), "c1"); err != nil {
			t.Errorf("%s: %v", state, err)
		}
		for id, want := range map[string]int{"c1": 0, "c2": 4} { // record, claim, directory, device-info
			found := 0
			for _, pattern := range []string{stateDir + "/*@" + id + "@*", "/run/jackfield/claims/*" + id + "-*", DefaultSocketDir + "/" + id + "-*",
				deviceinfo.DefaultCNIDir + "/*" + id + "_*"} {
				names, _ := filepath.Glob(filepath.Join(root, pattern))
				found += len(names)
			}
			if found != want {
				t.Errorf("%s: %s has %d entries, want %d", state, id, found, want)
			}
		}
		hasIPAM := state == "intact" || state == "in a listed stateDir"
		if want := map[bool]int{true: 1}[hasIPAM]; len(released) != want {
			t.Errorf("%s: released %v", state, released)
		}
	}
}

// A sandbox that the runtime lists, one whose network namespace exists, and one whose ADD may be running are not
// abandoned. Neither is a container of Podman.
func TestAbandonedIsNeverLiving(t *testing.T) {
	a := newPortRequest(t, &stoppedSwitch{})
	a.Port, a.InfoDir = PortRequest{}, deviceinfo.DefaultCNIDir
	root := a.Root.Path("/")
	if err := os.MkdirAll(filepath.Join(root, "run/netns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "run/netns/exists"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for id, change := range map[string]func(*Attachment){
		"gone": func(*Attachment) {}, "listed": func(*Attachment) {}, "young": func(*Attachment) {},
		"running": func(a *Attachment) { a.Netns = "/run/netns/exists" },
		"silent":  func(a *Attachment) { a.Netns = "" },
		"podman":  func(a *Attachment) { a.Adapter = "netavark" },
	} {
		one := *a
		one.ContainerID, one.Netns = id, "/run/netns/gone"
		change(&one)
		if err := one.Add(t.Context(), noAddresses, func(*deviceinfo.Info) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if id != "young" {
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(filepath.Join(root, DefaultStateDir, one.FileName()), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := &Sweeper{Root: a.Root, Config: config.Default()}
	keys, err := s.Abandoned(func(id string) bool { return id == "listed" }, time.Now().Add(-time.Minute))
	if err != nil || len(keys) != 1 || keys[0].ContainerID != "gone" {
		t.Errorf("abandoned: %v, %v", keys, err)
	}
}

// A sweep lists a record once, also where the configuration lists the default directory.
func TestStateDirsOccurOnce(t *testing.T) {
	cfg := config.Default()
	cfg.CNI.StateDirs = []string{"/run/jackfield/cni", DefaultStateDir, "/srv/a", "/srv/*", "/srv/a"}
	if got := StateDirs(cfg); !slices.Equal(got, []string{DefaultStateDir, "/srv/a"}) {
		t.Errorf("got %q", got)
	}
}
