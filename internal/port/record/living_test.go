// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

func TestLivingListsContainersWhoseRuntimeHasNotEndedThem(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := Living(host, DefaultDir); err != nil || len(ids) > 0 {
		t.Errorf("without a directory: %q, %v", ids, err)
	}
	st, err := Open(host, DefaultDir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := os.MkdirAll(filepath.Join(dir, "run/netns/there"), 0o755); err != nil {
		t.Fatal(err)
	}
	here := FindNetns(host, "/run/netns/there")
	for id, r := range map[string]Record{
		"living":   {Netns: "/run/netns/there"},
		"same":     {Netns: "/run/netns/there", NetnsID: here},
		"reused":   {Netns: "/run/netns/there", NetnsID: &hostfs.FileID{Device: here.Device, Inode: here.Inode + 1}},
		"unseen":   {Netns: "/run/netns/there", NetnsID: &hostfs.FileID{Device: here.Device + 1, Inode: here.Inode + 1}},
		"gone":     {Netns: "/run/netns/gone"},
		"podman":   {Adapter: "netavark", Netns: "/run/netns/hidden"},
		"leftover": {Adapter: "netavark", Netns: "/run/netns/there", Leftover: true},
		"broken":   {},
	} {
		r.Key = Key{Network: "fast", ContainerID: id, Interface: "net1"}
		r.InfoDir, r.InfoFile = "/d", "f"
		r.Info = &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version, VhostUser: &deviceinfo.VhostUser{Mode: "server", Path: "/s"}}
		if err := st.Create(&r); err != nil {
			t.Fatal(err)
		}
	}
	broken := Key{Network: "fast", ContainerID: "broken", Interface: "net1"}
	if err := os.WriteFile(filepath.Join(dir, DefaultDir, broken.FileName()), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	ids, err := Living(host, DefaultDir)
	if err != nil || !slices.Equal(ids, []string{"broken", "living", "podman", "same", "unseen"}) {
		t.Errorf("%q, %v", ids, err)
	}
}

// The network namespace of a later container can have the name of an earlier one.
func TestContainerWithReusedNetnsIsNotRunning(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "netns"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := &Record{Adapter: "netavark", Netns: "/netns", NetnsID: FindNetns(host, "/netns")}
	if !r.IsRunningUnlisted(host) {
		t.Error("the container is not running")
	}
	if err := os.WriteFile(filepath.Join(dir, "later"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "later"), filepath.Join(dir, "netns")); err != nil {
		t.Fatal(err)
	}
	if r.IsRunningUnlisted(host) {
		t.Error("the container is running in the network namespace of a later one")
	}
}
