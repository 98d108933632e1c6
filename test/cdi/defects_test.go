// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	upstream "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Each test here shows one defect of upstream's cache, and that the registry does not have
// it. The test fails when upstream fixes the defect.

// cachePair has a registry and an upstream cache of the same directories.
type cachePair struct {
	*testing.T
	dirs  []string
	ours  *cdi.Cache
	cache *upstream.Cache
}

func newCachePair(t *testing.T, dirs ...string) *cachePair {
	t.Helper()
	b := &cachePair{T: t, dirs: dirs}
	if dirs == nil {
		b.dirs = []string{t.TempDir() + "/low", t.TempDir() + "/high"}
	}
	for _, d := range b.dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// openCaches loads the directories on both sides.
func (b *cachePair) openCaches() {
	b.Helper()
	r, err := cdi.NewCache(cdi.Options{SpecDirs: b.dirs})
	if err != nil {
		b.Fatal(err)
	}
	b.ours = r
	r.Snapshot()
	if b.cache, err = upstream.NewCache(upstream.WithSpecDirs(b.dirs...)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.Close()
		_ = b.cache.Configure(upstream.WithAutoRefresh(false), upstream.WithSpecDirs("/nonexistent"))
	})
}

func (b *cachePair) renameIntoPlace(file, text string) {
	b.Helper()
	tmp := filepath.Join(filepath.Dir(file), ".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(tmp, file); err != nil {
		b.Fatal(err)
	}
}

// ourEnv returns the first variable of a device; "" without the device.
func (b *cachePair) ourEnv(name string) string {
	d, err := b.ours.Snapshot().Device(name)
	if err != nil {
		return ""
	}
	return d.Edits.Env[0]
}

func (b *cachePair) theirEnv(name string) string {
	d := b.cache.GetDevice(name)
	if d == nil {
		return ""
	}
	return d.ContainerEdits.Env[0]
}

// waitForUpstream waits until upstream's device has the wanted variable.
func (b *cachePair) waitForUpstream(name, want string) {
	for end := time.Now().Add(time.Minute); b.theirEnv(name) != want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
}

// expectDifference checks that the registry has the wanted device, and that upstream does not,
// even after it had time to reload.
func (b *cachePair) expectDifference(name, want string) {
	b.Helper()
	if got := b.ourEnv(name); got != want {
		b.Errorf("jackfield has %q, want %q", got, want)
	}
	for range 30 {
		if b.theirEnv(name) == want {
			b.Errorf("upstream has %q as well: it has fixed the defect; remove this test and its row in docs/contributing/conformance-cdi.md", want)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func specWithEnv(value string, devices ...string) string {
	var list []string
	for _, d := range devices {
		list = append(list, fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["V=%s"]}}`, d, value))
	}
	return `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[` + strings.Join(list, ",") + `]}`
}

// Defect 1: a null entry makes upstream panic, or is an error without its place.
func TestNullEntryIsRejectedWithoutPanic(t *testing.T) {
	for _, field := range []string{"mounts", "hooks", "deviceNodes", "netDevices"} {
		text := []byte(`{"cdiVersion":"1.1.0","kind":"v.com/c","devices":[{"name":"d","containerEdits":{"` + field + `":[null]}}]}`)
		_, err := parseUpstream(t.TempDir(), text)
		panics := field == "mounts" || field == "deviceNodes"
		if err == nil || strings.Contains(err.Error(), "panics") != panics {
			t.Errorf("upstream on %s: %v", field, err)
		}
		if _, d := parseText(text); len(d) != 1 || !strings.Contains(d[0].Error(), field+"[0]: found null") {
			t.Errorf("jackfield: %v", d)
		}
	}
}

// Defect 4: after an error in one directory upstream skips the later directories.
func TestInvalidDirectoryHidesNoOther(t *testing.T) {
	b := newCachePair(t)
	if err := os.Remove(b.dirs[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.dirs[0], nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.renameIntoPlace(b.dirs[1]+"/a.json", specWithEnv("x", "d"))
	b.openCaches()
	b.expectDifference("v.com/c=d", "V=x")
}

// Defect 5: upstream does not notice that the target of a symlink was edited.
func TestEditedSymlinkTargetIsReread(t *testing.T) {
	b := newCachePair(t)
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte(specWithEnv("old", "d")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, b.dirs[0]+"/a.json"); err != nil {
		t.Fatal(err)
	}
	b.openCaches()
	if b.theirEnv("v.com/c=d") != "V=old" {
		t.Fatal("upstream does not read the symlink")
	}
	if err := os.WriteFile(target, []byte(specWithEnv("new", "d")), 0o644); err != nil {
		t.Fatal(err)
	}
	b.expectDifference("v.com/c=d", "V=new")
}

// Defect 5: upstream does not watch a directory that was exchanged for another.
func TestExchangedDirectoryIsWatched(t *testing.T) {
	b := newCachePair(t)
	b.renameIntoPlace(b.dirs[0]+"/a.json", specWithEnv("old", "d"))
	other := b.dirs[0] + "-other"
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	b.renameIntoPlace(other+"/a.json", specWithEnv("new", "d"))
	b.openCaches()
	b.theirEnv("v.com/c=d")
	if err := unix.Renameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, b.dirs[0], unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	b.waitForUpstream("v.com/c=d", "V=new")
	if got := b.ourEnv("v.com/c=d"); got != "V=new" {
		t.Errorf("jackfield has %q", got)
	}
	b.renameIntoPlace(b.dirs[0]+"/b.json", specWithEnv("later", "e"))
	b.expectDifference("v.com/c=e", "V=later")
}

// Defect 5: upstream does not watch a directory that was removed and re-created.
func TestRecreatedDirectoryIsWatched(t *testing.T) {
	b := newCachePair(t)
	b.renameIntoPlace(b.dirs[0]+"/a.json", specWithEnv("old", "d"))
	b.openCaches()
	if b.theirEnv("v.com/c=d") != "V=old" {
		t.Fatal("upstream does not read the directory")
	}
	// The new directory exists at once, so upstream never finds it missing.
	old := b.dirs[0] + "-old"
	if err := errors.Join(os.Rename(b.dirs[0], old), os.Mkdir(b.dirs[0], 0o755), os.RemoveAll(old)); err != nil {
		t.Fatal(err)
	}
	b.waitForUpstream("v.com/c=d", "")
	if got := b.ourEnv("v.com/c=d"); got != "" {
		t.Errorf("jackfield still has %q of the removed directory", got)
	}
	b.renameIntoPlace(b.dirs[0]+"/b.json", specWithEnv("later", "e"))
	b.expectDifference("v.com/c=e", "V=later")
}

// Defect 6: a conflict between two files of low priority hides a valid device of high priority.
func TestLowPriorityConflictHidesNoDevice(t *testing.T) {
	b := newCachePair(t)
	b.renameIntoPlace(b.dirs[0]+"/a.json", specWithEnv("a", "d"))
	b.renameIntoPlace(b.dirs[0]+"/b.json", specWithEnv("b", "d"))
	b.renameIntoPlace(b.dirs[1]+"/c.json", specWithEnv("high", "d"))
	b.openCaches()
	b.expectDifference("v.com/c=d", "V=high")
}

// Defect 8: upstream returns the devices of several annotations in another order at each call.
func TestAnnotationsHaveStableOrder(t *testing.T) {
	annotations := map[string]string{}
	var want []string
	for i := range 9 {
		name := fmt.Sprintf("v.com/c=d%d", i)
		annotations[fmt.Sprintf("cdi.k8s.io/v.com_c_%d", i)] = name
		want = append(want, name)
	}
	orders := map[string]bool{}
	for range 100 {
		_, devices, err := upstream.ParseAnnotations(annotations)
		if err != nil || len(devices) != len(want) {
			t.Fatalf("upstream returns %q, %v", devices, err)
		}
		orders[strings.Join(devices, " ")] = true
		requests, err := annotation.Parse(annotations, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range requests.Devices {
			got = append(got, d.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("jackfield's order (-want +got):\n%s", diff)
		}
	}
	if len(orders) == 1 {
		t.Error(upstreamFixed)
	}
}

// TestAnnotationRulesAgreeWithUpstream compares which annotations each side accepts. Each difference has a row in the
// table of docs/contributing/conformance-cdi.md.
func TestAnnotationRulesAgreeWithUpstream(t *testing.T) {
	const key = "cdi.k8s.io/v.com_c"
	for _, tc := range []struct {
		key, value string
		stricter   bool
	}{
		{key, "v.com/c=d", false}, {key, "v.com/c=d,v.com/c=e,v.com/c=d", false}, {"cdi.k8s.io", "nonsense", false},
		{key, "", false}, {key, "v.com/c=d,", false}, {key, "v.com/c=d, v.com/c=e", false}, {key, " v.com/c=d", false},
		{key, "v.com/c", false}, {key, "c=d", false}, {key, "v.com/c=d=e", false}, {key, "1v.com/c=d", false}, {key, "v.com/c=-", false},
		{"cdi.k8s.io/", "v.com/c=d", true}, {"cdi.k8s.io/-a", "v.com/c=d", true}, {"cdi.k8s.io/a/b", "v.com/c=d", true},
		{"cdi.k8s.io/" + strings.Repeat("a", 64), "v.com/c=d", true},
		{key, strings.Repeat("v.com/c=d,", annotation.MaxItems) + "v.com/c=d", true},
		{key, "v.com/c=" + strings.Repeat("d", annotation.MaxValueBytes), true},
	} {
		_, _, theirs := upstream.ParseAnnotations(map[string]string{tc.key: tc.value})
		_, ours := annotation.Parse(map[string]string{tc.key: tc.value}, "")
		if (ours == nil) != (theirs == nil && !tc.stricter) || tc.stricter && theirs != nil {
			t.Errorf("%.80q: %.40q: jackfield: %v, upstream: %v", tc.key, tc.value, ours, theirs)
		}
	}
}

// Defect 11: upstream accepts what the specification forbids. Defect 12: it accepts trailing data.
func TestForbiddenFilesAreRejected(t *testing.T) {
	device := func(edits string) string {
		return `{"cdiVersion":"1.1.0","kind":"v.com/c","devices":[{"name":"d","containerEdits":` + edits + `}]}`
	}
	for rule, text := range map[string]string{
		"an annotation's key":     `{"cdiVersion":"1.1.0","kind":"v.com/c","annotations":{"BAD KEY":"x"},"devices":[{"name":"d","containerEdits":{"env":["A=b"]}}]}`,
		"greater than 0":          device(`{"hooks":[{"hookName":"prestart","path":"/bin/true","timeout":0}]}`),
		"hooks[0].path":           device(`{"hooks":[{"hookName":"prestart","path":"true"}]}`),
		"mounts[0].containerPath": device(`{"mounts":[{"hostPath":"/a","containerPath":"b"}]}`),
		"mounts[0].hostPath":      device(`{"mounts":[{"hostPath":"a","containerPath":"/b"}]}`),
		"at most 63":              strings.Replace(device(`{"env":["A=b"]}`), "v.com/c", "v.com/"+strings.Repeat("c", 64), 1),
		"follow the end":          device(`{"env":["A=b"]}`) + " garbage",
		"at most 2147483647":      device(`{"hooks":[{"hookName":"prestart","path":"/bin/true","timeout":2147483648}]}`),
		"not null":                "cdiVersion: 0.6.0\nkind: v/c\nannotations: {null: b}\ndevices: [{name: d, containerEdits: {env: [A=b]}}]\n",
		"a second YAML document":  "cdiVersion: 0.3.0\nkind: v/c\ndevices: [{name: d, containerEdits: {env: [A=b]}}]\n---\nmore: data\n",
	} {
		if _, err := parseUpstream(t.TempDir(), []byte(text)); err != nil {
			t.Errorf("%s: upstream rejects it as well: %v", rule, err)
		}
		if _, d := parseText([]byte(text)); len(d) == 0 || !strings.Contains(d[0].Error(), rule) {
			t.Errorf("%s: jackfield returns %v", rule, d)
		}
	}
}

// Defect 12: upstream rejects escapes of JSON, and characters that YAML requires to be escaped.
func TestJSONEscapesAreAccepted(t *testing.T) {
	for escape, want := range map[string]string{`\/`: "/", `\ud83d\ude00`: "\U0001f600", "\x7f": "\x7f", "\u0086": "\u0086", "\uffff": "\uffff"} {
		text := []byte(strings.Replace(specWithEnv("x", "d"), "V=x", "V="+escape, 1))
		if _, err := parseUpstream(t.TempDir(), text); err == nil {
			t.Errorf("upstream accepts %s as well", escape)
		}
		spec, d := parseText(text)
		if len(d) > 0 || spec.Devices[0].ContainerEdits.Env[0] != "V="+want {
			t.Errorf("%s: jackfield returns %v, %v", escape, spec, d)
		}
	}
}

// Upstream rejects white space that JSON allows and YAML does not.
func TestJSONWhiteSpaceIsAccepted(t *testing.T) {
	good := specWithEnv("x", "d")
	for what, text := range map[string]string{
		"a tab before the spec":         "\t" + good,
		"a tab on a line after it":      good + "\n\t",
		"a key with its colon below it": strings.Replace(good, `"kind":`, "\"kind\"\n:", 1),
	} {
		if _, err := parseUpstream(t.TempDir(), []byte(text)); err == nil {
			t.Errorf("%s: upstream accepts it as well", what)
		}
		if _, d := parseText([]byte(text)); len(d) > 0 {
			t.Errorf("%s: jackfield returns %v", what, d)
		}
	}
}

// Upstream reads JSON as YAML, in which a next-line character in a string is a space.
func TestNextLineCharacterIsKept(t *testing.T) {
	text := []byte(strings.Replace(specWithEnv("x", "d"), "V=x", "V=a\u0085b", 1))
	theirs, err := parseUpstream(t.TempDir(), text)
	if err != nil || theirs.Devices[0].ContainerEdits.Env[0] != "V=a b" {
		t.Errorf("upstream returns %v, %v", theirs, err)
	}
	ours, d := parseText(text)
	if len(d) > 0 || ours.Devices[0].ContainerEdits.Env[0] != "V=a\u0085b" {
		t.Errorf("jackfield returns %v, %v", ours, d)
	}
}

// Defect 12: a FIFO blocks upstream's load.
func TestFIFODoesNotBlockRegistry(t *testing.T) {
	b := newCachePair(t)
	fifo := b.dirs[0] + "/x.json"
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	b.renameIntoPlace(b.dirs[1]+"/a.json", specWithEnv("x", "d"))
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		_, _ = upstream.NewCache(upstream.WithSpecDirs(b.dirs...), upstream.WithAutoRefresh(false))
	}()
	r, err := cdi.NewCache(cdi.Options{SpecDirs: b.dirs})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// Opening the FIFO blocks until there is a writer. The test opens it for writing below.
	answered := make(chan error, 1)
	go func() {
		_, err := r.Snapshot().Device("v.com/c=d")
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Errorf("jackfield: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("jackfield hangs")
	}
	select {
	case <-loaded:
		t.Error("upstream no longer hangs")
	case <-time.After(300 * time.Millisecond):
	}
	// The writer unblocks upstream's load, which must return before the test ends.
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-loaded
}

// Defect 13: only root can read the spec files that upstream writes.
func TestWrittenSpecIsReadableByAll(t *testing.T) {
	b := newCachePair(t)
	b.openCaches()
	spec := &specs.Spec{Version: "0.5.0", Kind: "v.com/c", Devices: []specs.Device{{Name: "d", ContainerEdits: specs.ContainerEdits{Env: []string{"V=x"}}}}}
	if err := b.cache.WriteSpec(spec, "theirs.json"); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(b.dirs[1] + "/theirs.json"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("upstream writes with mode %v, %v", st.Mode(), err)
	}
	file, err := b.ours.WriteSpec(spec, "ours.json")
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("jackfield writes with mode %v, %v", st.Mode(), err)
	}
}

// Without a number: upstream's lookup right after a rename misses the file.
func TestLookupFindsFileRenamedBefore(t *testing.T) {
	b := newCachePair(t)
	for i := range 200 {
		b.renameIntoPlace(fmt.Sprintf("%s/base-%d.json", b.dirs[0], i), specWithEnv("x", fmt.Sprint("base", i)))
	}
	b.openCaches()
	ours, theirs := 0, 0
	for i := range 100 {
		name := fmt.Sprint("new", i)
		b.renameIntoPlace(fmt.Sprintf("%s/%s.json", b.dirs[1], name), specWithEnv("x", name))
		if b.ourEnv("v.com/c="+name) == "" {
			ours++
		}
		if b.theirEnv("v.com/c="+name) == "" {
			theirs++
		}
	}
	t.Logf("of 100 lookups jackfield missed %d, upstream %d", ours, theirs)
	if ours != 0 || theirs == 0 {
		t.Errorf("of 100 lookups jackfield missed %d, upstream %d", ours, theirs)
	}
}

// Without a number: two of upstream's version rules check the last device only. The registry
// accepts the same files, and ValidateFile warns.
func TestVersionRulesOfEarlierDevices(t *testing.T) {
	const bind = `{"mounts":[{"hostPath":"/a","containerPath":"/b","type":"bind"}]}`
	text := func(first, last string) []byte {
		return []byte(`{"cdiVersion":"0.3.0","kind":"v/c","devices":[{"name":"a","containerEdits":` + first + `},{"name":"b","containerEdits":` + last + `}]}`)
	}
	for _, c := range []struct {
		text     []byte
		accepted bool
	}{{text(bind, `{"env":["A=b"]}`), true}, {text(`{"env":["A=b"]}`, bind), false}} {
		_, err := parseUpstream(t.TempDir(), c.text)
		_, d := parseText(c.text)
		if (err == nil) != c.accepted || (len(d) == 0) != c.accepted {
			t.Errorf("%s: upstream %v, jackfield %v", c.text, err, d)
		}
	}
}
