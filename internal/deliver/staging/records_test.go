// SPDX-License-Identifier: Apache-2.0

package staging_test

import (
	"slices"
	"testing"

	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Another process finds the recorded containers, and no removed ones.
func TestRecordedContainers(t *testing.T) {
	host, err := hostfs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := staging.RecordedContainers(host, "/run/state", "s1"); err != nil || ids != nil {
		t.Errorf("without a state directory: %v, %v", ids, err)
	}
	store, err := staging.Open(host, "/run/state", staging.Options{Mode: staging.ModeDirectory})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []edit.Container{{ID: "b", SandboxID: "s1"}, {ID: "a", SandboxID: "s1"}, {ID: "c", SandboxID: "s2"}} {
		if err := store.Prepare(c); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, got []string, err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	ids, err := staging.RecordedContainers(host, "/run/state", "s1")
	want("containers of s1", ids, err, "a", "b")
	ids, err = staging.RecordedSandboxes(host, "/run/state", "c")
	want("sandboxes of c", ids, err, "s2")
	ids, err = staging.RecordedSandboxes(host, "/run/state", "nobody")
	want("sandboxes of an unknown one", ids, err)
	if err := store.RemoveSandbox("s1"); err != nil {
		t.Fatal(err)
	}
	ids, err = staging.RecordedContainers(host, "/run/state", "s1")
	want("containers of one that was removed", ids, err)
}
