// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	vf   = "0000:03:00.3"
	vf2  = "0000:03:00.4"
	pf   = "0000:03:00.0"
	base = "/sys/bus/pci/devices/" + vf
)

func dev(minor uint32) sysfstest.Dev { return sysfstest.Dev{Major: 240, Minor: minor} }

func newTree(t testing.TB) *sysfstest.Tree {
	t.Helper()
	tree, err := sysfstest.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// must fails the test on an error. It skips the test where mknod is not permitted.
func must(t testing.TB, errs ...error) {
	t.Helper()
	err := errors.Join(errs...)
	if errors.Is(err, sysfstest.ErrNoMknod) && os.Geteuid() != 0 {
		t.Skipf("skipped: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func paths(nodes []sysfs.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Path)
	}
	return out
}

// render returns a line per node, without the owner, who is the user that runs the test.
func render(nodes []sysfs.Node) string {
	var b strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&b, "%s %d:%d %04o <- %s\n", n.Path, n.Major, n.Minor, n.FileMode, n.From)
	}
	return b.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func wantErr(t *testing.T, err, sentinel error, parts ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("error is %v, want %v", err, sentinel)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not name %q", err, p)
		}
	}
}
