// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// A program that pins more memory than the limit fails with an error that rarely names the limit.
func TestMemlockIsReportedForRulesWithPinningDevices(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	examine := func(rule string) findings {
		t.Helper()
		cfg, err := config.Parse([]byte("policy:\n  rules:\n    - {name: r, for: {namespaces: [ns]}, "+rule+"}\n"), "c.yaml")
		if err != nil {
			t.Fatal(err)
		}
		n := newNode(Options{Host: host})
		n.cfg = cfg
		return checkMemlock(t.Context(), n)
	}
	const vfio = `allow: {devices: ["/dev/vfio/*"]}`
	if found := examine(vfio); len(found) != 0 {
		t.Errorf("without a device: %+v", found)
	}
	for _, name := range []string{"vfio/vfio", "vfio/13", "vhost-net"} {
		if err := os.MkdirAll(filepath.Join(dir, "dev", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if found := examine(vfio); len(found) != 1 || found[0].Severity != Note {
		t.Errorf("with a device: %+v", found)
	}
	for _, rule := range []string{vfio + ", limits: {memlock: 2Gi}", `allow: {devices: ["/dev/vfio/vfio", "/dev/vhost-net"]}`} {
		if found := examine(rule); len(found) != 0 {
			t.Errorf("%s: %+v", rule, found)
		}
	}
}
