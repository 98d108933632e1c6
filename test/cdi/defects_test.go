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

	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Each test here shows one defect of upstream's cache, as long as it is there, and
// that the registry does not have it. When upstream mends one, its test says so.

// both is the two sides on the same directories.
type both struct {
	*testing.T
	dirs  []string
	ours  *cdiregistry.Registry
	cache *upstream.Cache
}

func newBoth(t *testing.T, dirs ...string) *both {
	t.Helper()
	b := &both{T: t, dirs: dirs}
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

// open loads what is there now.
func (b *both) open() {
	b.Helper()
	r, err := cdiregistry.New(hostfs.Host(), b.dirs, cdiregistry.Options{})
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

func (b *both) place(file, text string) {
	b.Helper()
	tmp := filepath.Join(filepath.Dir(file), ".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(tmp, file); err != nil {
		b.Fatal(err)
	}
}

// ourEnv is the first variable of a device; "" when it is not there.
func (b *both) ourEnv(name string) string {
	d, err := b.ours.Snapshot().Device(name)
	if err != nil {
		return ""
	}
	return d.Edits.Env[0]
}

func (b *both) theirEnv(name string) string {
	d := b.cache.GetDevice(name)
	if d == nil {
		return ""
	}
	return d.ContainerEdits.Env[0]
}

// giveUpstreamTime waits until upstream has it as wanted.
func (b *both) giveUpstreamTime(name, want string) {
	for end := time.Now().Add(time.Minute); b.theirEnv(name) != want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
}

// differ holds that a device is as wanted here, and not there, even after upstream
// had time to notice.
func (b *both) differ(name, want string) {
	b.Helper()
	if got := b.ourEnv(name); got != want {
		b.Errorf("jackfield has %q, want %q", got, want)
	}
	for range 30 {
		if b.theirEnv(name) == want {
			b.Errorf("upstream has %q as well: the defect is gone, take this test and its row in docs/cdi.md out", want)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func simple(value string, devices ...string) string {
	var list []string
	for _, d := range devices {
		list = append(list, fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["V=%s"]}}`, d, value))
	}
	return `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[` + strings.Join(list, ",") + `]}`
}

// Defect 1: a null entry kills the process.
func TestNullEntry(t *testing.T) {
	for _, field := range []string{"mounts", "hooks", "deviceNodes", "netDevices"} {
		text := []byte(`{"cdiVersion":"1.1.0","kind":"v.com/c","devices":[{"name":"d","containerEdits":{"` + field + `":[null]}}]}`)
		if _, err := Upstream(t.TempDir(), text); err == nil || !strings.Contains(err.Error(), "panics") {
			t.Errorf("upstream does not panic on %s: %v", field, err)
		}
		if d := new(cdiregistry.Validator).Validate(text); len(d) != 1 || !strings.Contains(d[0].String(), field+"[0]: found null") {
			t.Errorf("jackfield: %v", d)
		}
	}
}

// Defect 4: an error on one directory skips the later ones.
func TestDirectoryError(t *testing.T) {
	b := newBoth(t)
	if err := os.Remove(b.dirs[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.dirs[0], nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.place(b.dirs[1]+"/a.json", simple("x", "d"))
	b.open()
	b.differ("v.com/c=d", "V=x")
}

// Defect 5: what a symlink leads to is edited.
func TestSymlinkTarget(t *testing.T) {
	b := newBoth(t)
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte(simple("old", "d")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, b.dirs[0]+"/a.json"); err != nil {
		t.Fatal(err)
	}
	b.open()
	if b.theirEnv("v.com/c=d") != "V=old" {
		t.Fatal("upstream does not read the symlink")
	}
	if err := os.WriteFile(target, []byte(simple("new", "d")), 0o644); err != nil {
		t.Fatal(err)
	}
	b.differ("v.com/c=d", "V=new")
}

// Defect 5: a directory is swapped, and then a file is put into the new one.
func TestDirectorySwapped(t *testing.T) {
	b := newBoth(t)
	b.place(b.dirs[0]+"/a.json", simple("old", "d"))
	other := b.dirs[0] + "-other"
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	b.place(other+"/a.json", simple("new", "d"))
	b.open()
	b.theirEnv("v.com/c=d")
	if err := unix.Renameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, b.dirs[0], unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	b.giveUpstreamTime("v.com/c=d", "V=new")
	if got := b.ourEnv("v.com/c=d"); got != "V=new" {
		t.Errorf("jackfield has %q", got)
	}
	b.place(b.dirs[0]+"/b.json", simple("later", "e"))
	b.differ("v.com/c=e", "V=later")
}

// Defect 5: a directory is removed and made anew.
func TestDirectoryMadeAnew(t *testing.T) {
	b := newBoth(t)
	b.place(b.dirs[0]+"/a.json", simple("old", "d"))
	b.open()
	if b.theirEnv("v.com/c=d") != "V=old" {
		t.Fatal("upstream does not read the directory")
	}
	// The new one is there in the same moment, so that no look finds none.
	old := b.dirs[0] + "-old"
	if err := errors.Join(os.Rename(b.dirs[0], old), os.Mkdir(b.dirs[0], 0o755), os.RemoveAll(old)); err != nil {
		t.Fatal(err)
	}
	b.giveUpstreamTime("v.com/c=d", "")
	if got := b.ourEnv("v.com/c=d"); got != "" {
		t.Errorf("jackfield has %q of the directory that is gone", got)
	}
	b.place(b.dirs[0]+"/b.json", simple("later", "e"))
	b.differ("v.com/c=e", "V=later")
}

// Defect 6: two files of low priority take a valid device of high priority away.
func TestShadowedConflict(t *testing.T) {
	b := newBoth(t)
	b.place(b.dirs[0]+"/a.json", simple("a", "d"))
	b.place(b.dirs[0]+"/b.json", simple("b", "d"))
	b.place(b.dirs[1]+"/c.json", simple("high", "d"))
	b.open()
	b.differ("v.com/c=d", "V=high")
}

// Defect 8: the devices of several annotations come in an order that differs from
// one call to the next.
func TestAnnotationOrder(t *testing.T) {
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
			t.Fatalf("upstream gives %q, %v", devices, err)
		}
		orders[strings.Join(devices, " ")] = true
		list, err := annotation.ParseCDI(annotations)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range list {
			got = append(got, d.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("jackfield's order (-want +got):\n%s", diff)
		}
	}
	if len(orders) == 1 {
		t.Error(mended)
	}
}

// TestAnnotations compares the verdicts on one annotation; where they differ the
// table in docs/cdi.md has a row.
func TestAnnotations(t *testing.T) {
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
		_, ours := annotation.ParseCDI(map[string]string{tc.key: tc.value})
		if (ours == nil) != (theirs == nil && !tc.stricter) || tc.stricter && theirs != nil {
			t.Errorf("%.80q: %.40q: jackfield: %v, upstream: %v", tc.key, tc.value, ours, theirs)
		}
	}
}

// Defect 11: what the specification forbids passes; defect 12: trailing data too.
func TestTooLenient(t *testing.T) {
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
		"after the end":           device(`{"env":["A=b"]}`) + " garbage",
		"at most 2147483647":      device(`{"hooks":[{"hookName":"prestart","path":"/bin/true","timeout":2147483648}]}`),
		"not null":                "cdiVersion: 0.6.0\nkind: v/c\nannotations: {null: b}\ndevices: [{name: d, containerEdits: {env: [A=b]}}]\n",
		"a second document":       "cdiVersion: 0.3.0\nkind: v/c\ndevices: [{name: d, containerEdits: {env: [A=b]}}]\n---\nmore: data\n",
	} {
		if _, err := Upstream(t.TempDir(), []byte(text)); err != nil {
			t.Errorf("%s: upstream refuses it too: %v", rule, err)
		}
		if d := new(cdiregistry.Validator).Validate([]byte(text)); len(d) == 0 || !strings.Contains(d[0].String(), rule) {
			t.Errorf("%s: jackfield gives %v", rule, d)
		}
	}
}

// Defect 12: escapes of JSON are refused, and so are characters that YAML does not
// take as they are.
func TestEscapes(t *testing.T) {
	for escape, want := range map[string]string{`\/`: "/", `\ud83d\ude00`: "\U0001f600", "\x7f": "\x7f", "\u0086": "\u0086", "\uffff": "\uffff"} {
		text := []byte(strings.Replace(simple("x", "d"), "V=x", "V="+escape, 1))
		if _, err := Upstream(t.TempDir(), text); err == nil {
			t.Errorf("upstream takes %s as well", escape)
		}
		spec, d := new(cdiregistry.Validator).Parse(text)
		if len(d) > 0 || spec.Devices[0].ContainerEdits.Env[0] != "V="+want {
			t.Errorf("%s: jackfield gives %v, %v", escape, spec, d)
		}
	}
}

// White space that JSON takes anywhere is refused, as YAML wants it elsewhere.
func TestJSONSpace(t *testing.T) {
	good := simple("x", "d")
	for what, text := range map[string]string{
		"a tab before the spec":         "\t" + good,
		"a tab on a line behind it":     good + "\n\t",
		"a key with its colon below it": strings.Replace(good, `"kind":`, "\"kind\"\n:", 1),
	} {
		if _, err := Upstream(t.TempDir(), []byte(text)); err == nil {
			t.Errorf("%s: upstream takes it as well", what)
		}
		if d := new(cdiregistry.Validator).Validate([]byte(text)); len(d) > 0 {
			t.Errorf("%s: jackfield gives %v", what, d)
		}
	}
}

// A next-line character in a string is a space to YAML, which upstream reads JSON as.
func TestNextLine(t *testing.T) {
	text := []byte(strings.Replace(simple("x", "d"), "V=x", "V=a\u0085b", 1))
	theirs, err := Upstream(t.TempDir(), text)
	if err != nil || theirs.Devices[0].ContainerEdits.Env[0] != "V=a b" {
		t.Errorf("upstream gives %v, %v", theirs, err)
	}
	ours, d := new(cdiregistry.Validator).Parse(text)
	if len(d) > 0 || ours.Devices[0].ContainerEdits.Env[0] != "V=a\u0085b" {
		t.Errorf("jackfield gives %v, %v", ours, d)
	}
}

// Defect 12: a FIFO hangs the load.
func TestFIFO(t *testing.T) {
	b := newBoth(t)
	fifo := b.dirs[0] + "/x.json"
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	b.place(b.dirs[1]+"/a.json", simple("x", "d"))
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		_, _ = upstream.NewCache(upstream.WithSpecDirs(b.dirs...), upstream.WithAutoRefresh(false))
	}()
	r, err := cdiregistry.New(hostfs.Host(), b.dirs, cdiregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// Whoever opens the FIFO does so until there is a writer, which comes below.
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
		t.Error("upstream does not hang any more")
	case <-time.After(300 * time.Millisecond):
	}
	// A writer lets it go on; it must be there before the test ends.
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-loaded
}

// Defect 13: written specs can be read by root alone.
func TestWrittenMode(t *testing.T) {
	b := newBoth(t)
	b.open()
	spec := &specs.Spec{Version: "0.5.0", Kind: "v.com/c", Devices: []specs.Device{{Name: "d", ContainerEdits: specs.ContainerEdits{Env: []string{"V=x"}}}}}
	if err := b.cache.WriteSpec(spec, "theirs.json"); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(b.dirs[1] + "/theirs.json"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("upstream writes with mode %v, %v", st.Mode(), err)
	}
	file, err := cdiregistry.WriteSpec(hostfs.Host(), b.dirs[1], "ours.json", spec)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("jackfield writes with mode %v, %v", st.Mode(), err)
	}
}

// Not among the fourteen: a lookup right after a rename misses the file.
func TestRenameThenLookup(t *testing.T) {
	b := newBoth(t)
	for i := range 200 {
		b.place(fmt.Sprintf("%s/base-%d.json", b.dirs[0], i), simple("x", fmt.Sprint("base", i)))
	}
	b.open()
	ours, theirs := 0, 0
	for i := range 100 {
		name := fmt.Sprint("new", i)
		b.place(fmt.Sprintf("%s/%s.json", b.dirs[1], name), simple("x", name))
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

// Not among the fourteen: upstream looks at the last device only for two of the
// version rules. The registry takes the same files, and ValidateFile warns.
func TestEarlyDeviceVersion(t *testing.T) {
	const bind = `{"mounts":[{"hostPath":"/a","containerPath":"/b","type":"bind"}]}`
	text := func(first, last string) []byte {
		return []byte(`{"cdiVersion":"0.3.0","kind":"v/c","devices":[{"name":"a","containerEdits":` + first + `},{"name":"b","containerEdits":` + last + `}]}`)
	}
	for _, c := range []struct {
		text  []byte
		taken bool
	}{{text(bind, `{"env":["A=b"]}`), true}, {text(`{"env":["A=b"]}`, bind), false}} {
		_, err := Upstream(t.TempDir(), c.text)
		d := new(cdiregistry.Validator).Validate(c.text)
		if (err == nil) != c.taken || (len(d) == 0) != c.taken {
			t.Errorf("%s: upstream %v, jackfield %v", c.text, err, d)
		}
	}
}
