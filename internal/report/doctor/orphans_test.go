// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// The doctor does not know which claims and containers exist. One finding reports all CDI files of
// claims and containers, and names a command.
func TestCheckTransientOrphans(t *testing.T) {
	root := t.TempDir()
	const dir = "/var/run/cdi/"
	const uid = "8d6a7b5c-0f0e-4c1d-9b2a-3e4f5a6b7c8d"
	for i, name := range []string{"k8s.io-gpu_base", "k8s.io-gpu_" + uid, "k8s.io-gpu_9" + uid[1:], "k8s.io-gpu_7" + uid[1:]} {
		file := filepath.Join(root, dir, name+".json")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "k8s.io/gpu", "devices": [{"name": "d%d", "containerEdits": {"env": ["A=b"]}}]}`, i)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := cdi.NewCache(cdi.Options{Root: host.Dir(), SpecDirs: []string{strings.TrimSuffix(dir, "/")}, TrustAnyone: true, DisableWatch: true})
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	n := newNode(Options{Host: host})
	n.snapshot = registry.Snapshot()
	found := checkTransientOrphans(n, []string{uid}, time.Now())
	if len(found) != 1 {
		t.Fatalf("%+v", found)
	}
	if f := found[0]; !strings.HasPrefix(f.Found, "2 CDI files named by an ID of no living pod, such as "+dir+"k8s.io-gpu_7") || f.Severity != Note {
		t.Errorf("%+v", f)
	}
	if !strings.HasPrefix(found[0].Remedy, "`jackfield cdi transient --alive FILE` ") {
		t.Errorf("the remedy is %q", found[0].Remedy)
	}
}

// Of Multus' cache only results are removed, and only those of removed sandboxes and of which the cache has no
// file: a DEL that is still owed needs both.
func TestFixRemovesMultusResults(t *testing.T) {
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	alive, gone, owed := id("a"), id("b"), id("c")
	cfg := config.Default()
	write := func(name string, age time.Duration) {
		file := filepath.Join(root, cfg.Multus.CacheDir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	const old = time.Hour
	write(alive, old)
	write(owed, old)
	for _, of := range []string{alive, gone, owed} {
		write("results/fast-"+of+"-net1", old)
	}
	write("results/new-"+gone+"-net1", 0)
	write("results/no-id-net1", old)
	target := filepath.Join(root, "precious")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(root, cfg.Multus.CacheDir, "results/link-"+gone+"-net1")
	for _, fix := range []bool{false, true} {
		found := checkMultusOrphans(newNode(Options{Host: host}), []string{alive}, time.Now().Add(-time.Minute))
		if len(found) != 2 {
			t.Fatalf("fix %v: %+v", fix, found)
		}
		if fix {
			found.fix(t.Context())
		}
		if f := found[0]; f.Severity != Note || f.Fixed || !strings.HasPrefix(f.Found, "1 cache file in "+cfg.Multus.CacheDir) {
			t.Errorf("fix %v: %+v", fix, f)
		}
		if f := found[1]; f.Severity != Warning || f.Fixed != fix || !strings.HasPrefix(f.Found, "1 result in "+cfg.Multus.CacheDir+"/results") {
			t.Errorf("fix %v: %+v", fix, f)
		}
		_, err := os.Stat(filepath.Join(root, cfg.Multus.CacheDir, "results/fast-"+gone+"-net1"))
		if fix != os.IsNotExist(err) {
			t.Errorf("fix %v: the result of the sandbox that is gone: %v", fix, err)
		}
	}
	for _, name := range []string{alive, owed, "results/fast-" + alive + "-net1", "results/fast-" + owed + "-net1", "results/new-" + gone + "-net1", "results/no-id-net1"} {
		if _, err := os.Stat(filepath.Join(root, cfg.Multus.CacheDir, name)); err != nil {
			t.Error(err)
		}
	}
	// No link is followed, and none is removed.
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if removeFiles(host, cfg.Multus.CacheDir+"/results", []string{filepath.Base(link)}) == nil {
		t.Error("a link counts as removed")
	}
	for _, file := range []string{target, link} {
		if _, err := os.Lstat(file); err != nil {
			t.Error(err)
		}
	}
}
