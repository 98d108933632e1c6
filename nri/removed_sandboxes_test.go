// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"os"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// recordAttachment records an attachment of a sandbox as an ADD one hour ago, with a network namespace that is gone.
func recordAttachment(t *testing.T, p *Plugin, sandboxID string) {
	t.Helper()
	store, err := record.Open(p.opts.Host, record.DefaultDir)
	testkit.Must(t, err)
	defer store.Close()
	key := record.Key{Network: "fast", ContainerID: sandboxID, Interface: "net1"}
	info := &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version,
		VhostUser: &deviceinfo.VhostUser{Mode: "server", Path: "/x"}}
	testkit.Must(t, store.Create(&record.Record{Key: key, Netns: "/run/netns/gone", InfoDir: deviceinfo.DefaultCNIDir,
		InfoFile: "default-fast-" + sandboxID + "_net1", Info: info}))
	old := time.Now().Add(-time.Hour)
	testkit.Must(t, os.Chtimes(p.opts.Host.Path(path.Join(record.DefaultDir, key.FileName())), old, old))
}

func recordedSandboxes(t *testing.T, p *Plugin) (ids []string) {
	t.Helper()
	store, err := record.Find(p.opts.Host, record.DefaultDir)
	testkit.Must(t, err)
	defer store.Close()
	keys, err := store.Keys()
	testkit.Must(t, err)
	for _, key := range keys {
		ids = append(ids, key.ContainerID)
	}
	return ids
}

// The attachments of removed sandboxes are removed. Before the runtime has listed the living sandboxes, only
// reported removals count, and a living sandbox is never swept.
func TestSweepOfRemovedSandboxes(t *testing.T) {
	p := newReloadHost(t, granting, false).p
	for _, id := range []string{"lives", "removed", "missed"} {
		recordAttachment(t, p, id)
	}
	want := func(what string, ids ...string) {
		t.Helper()
		p.removed.sweep()
		if got := recordedSandboxes(t, p); !slices.Equal(got, ids) {
			t.Errorf("%s: records of %q, want %q", what, got, ids)
		}
	}
	want("before Synchronize", "lives", "missed", "removed")
	testkit.Must(t, p.RunPodSandbox(t.Context(), &api.PodSandbox{Id: "lives"}))
	p.removed.add("lives")
	testkit.Must(t, p.RemovePodSandbox(t.Context(), &api.PodSandbox{Id: "removed"}))
	want("after the removal of a sandbox", "lives", "missed")
	_, err := p.Synchronize(t.Context(), []*api.PodSandbox{{Id: "lives"}}, nil)
	testkit.Must(t, err)
	want("after Synchronize", "lives")
}
