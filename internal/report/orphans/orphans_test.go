// SPDX-License-Identifier: Apache-2.0

package orphans_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/orphans"
	"github.com/jackfield/jackfield/pkg/cdi"
)

func TestDeviceInfoIsOrphanWithoutItsSandbox(t *testing.T) {
	id := strings.Repeat("0a", 32)
	other := strings.Repeat("1b", 32)
	for _, tt := range []struct {
		name string
		keep []string
		want bool
	}{
		{"telco-east-" + id + "_net1", []string{other}, true},
		{"telco-east-" + id + "_net1", []string{other, id}, false},
		{"telco-east-" + id + "_net1", []string{id[:13]}, false},
		// The ID of a living sandbox anywhere in the name keeps the file.
		{"telco-" + other + "-" + id + "_net1", []string{other}, false},
		{"telco-east-" + other + "_a-" + id + "_net1", []string{other}, false},
		// A name without a readable ID belongs to no orphan.
		{"telco-east-" + id[1:] + "_net1", []string{other}, false},
		{"telco-east-" + strings.ToUpper(id) + "_net1", []string{other}, false},
		{"telco-east-" + id + "_a-name-too-long-for-it", []string{other}, false},
		{"telco-east-" + id, []string{other}, false},
		{"." + "telco-east-" + id + "_net1", []string{other}, false},
		{"-" + id + "_net1", []string{other}, false},
	} {
		if got := orphans.IsDeviceInfo(tt.name, tt.keep); got != tt.want {
			t.Errorf("IsDeviceInfo(%q, %q) = %v, want %v", tt.name, tt.keep, got, tt.want)
		}
	}
}

func TestRemoveKeepsRewrittenSpecs(t *testing.T) {
	top := t.TempDir()
	host, err := hostfs.New(top)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.Options{Root: top, SpecDirs: []string{"/etc/cdi", "/run/cdi"}, DisableWatch: true, TrustAnyone: true})
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, device, env string) {
		t.Helper()
		text := fmt.Sprintf(`{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[{"name":%q,"containerEdits":{"env":[%q]}}]}`, device, env)
		if err := errors.Join(os.MkdirAll(filepath.Join(top, filepath.Dir(file)), 0o755), os.WriteFile(filepath.Join(top, file), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"gone/1", "alive-2", "again"} {
		name, err := cdi.GenerateTransientSpecName("v.com", "c", id)
		if err != nil {
			t.Fatal(err)
		}
		write("/run/cdi/"+name+".json", strings.ReplaceAll(id, "/", ":"), "A=b")
	}
	write("/run/cdi/v.com-c.json", "static", "A=b")
	write("/run/cdi/v.com-c_refused.json", "refused", "A")
	write("/etc/cdi/v.com-c_elsewhere.json", "elsewhere", "A=b")
	list := orphans.TransientSpecs(cache.Snapshot())
	// The file was written again after the list was read.
	if err := os.Chtimes(filepath.Join(top, "/run/cdi/v.com-c_again.json"), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, tr := range list {
		ids = append(ids, tr.ID)
	}
	if diff := cmp.Diff([]string{"again", "alive-2", "gone_1", "refused"}, ids); diff != "" {
		t.Error(diff)
	}
	removed, err := orphans.Remove(host, slices.DeleteFunc(list, func(tr orphans.TransientSpec) bool { return tr.ID == "alive-2" }))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/run/cdi/v.com-c_gone_1.json", "/run/cdi/v.com-c_refused.json"}, removed); diff != "" {
		t.Error(diff)
	}
	if left := cache.Snapshot().Files(); len(left) != 4 {
		t.Errorf("left: %v", left)
	}
}
