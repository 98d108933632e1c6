// SPDX-License-Identifier: Apache-2.0

package cnirecord

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
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
	for id, r := range map[string]Record{
		"living":   {Netns: "/run/netns/there"},
		"gone":     {Netns: "/run/netns/gone"},
		"old":      {},
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
	if err != nil || !slices.Equal(ids, []string{"broken", "living", "podman"}) {
		t.Errorf("%q, %v", ids, err)
	}
}
