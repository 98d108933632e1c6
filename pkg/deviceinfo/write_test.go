// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// newEmptyNode returns the root of a host without any directory, even without /var.
func newEmptyNode(t testing.TB) string {
	t.Helper()
	return t.TempDir()
}

func pciInfo() *Info {
	return &Info{Type: TypePCI, Version: Version, PCI: &PCI{PCIAddress: "0000:01:02.2"}}
}

// withUmask runs f under a umask that would change the modes of created files.
func withUmask(mask int, f func()) {
	old := unix.Umask(mask)
	defer unix.Umask(old)
	f()
}

func modeOf(t testing.TB, p string) os.FileMode {
	t.Helper()
	st, err := os.Lstat(p)
	testkit.Must(t, err)
	return st.Mode()
}

// listNames returns the names in a directory, including hidden files.
func listNames(t testing.TB, dir string) []string {
	t.Helper()
	es, err := os.ReadDir(dir)
	testkit.Must(t, err)
	var s []string
	for _, e := range es {
		s = append(s, e.Name())
	}
	return s
}

func TestSymlinksAtTheTargetAreNotFollowed(t *testing.T) {
	root := newEmptyNode(t)
	dp, cni := DevicePluginDir{Root: root}, CNIDir{Root: root}
	_, err := dp.Save("r", "1", pciInfo())
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(filepath.Join(root, DefaultCNIDir), 0o755))
	victim := filepath.Join(root, "victim")
	testkit.Must(t, os.WriteFile(victim, []byte("untouched"), 0o600))
	replaceBySymlink := func(p string) {
		testkit.Must(t, os.RemoveAll(filepath.Join(root, p)))
		testkit.Must(t, os.Symlink("/victim", filepath.Join(root, p)))
	}
	dpFile, err := dp.Path("r", "1")
	testkit.Must(t, err)
	replaceBySymlink(dpFile)
	if _, err := dp.Load("r", "1"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Load follows a symlink: %v", err)
	}
	_, err = dp.Save("r", "1", pciInfo())
	testkit.Must(t, err)
	cniFile, err := cni.Path("f")
	testkit.Must(t, err)
	replaceBySymlink(cniFile)
	_, _, err = cni.CopyFrom(dp, "r", "1", "f")
	testkit.Must(t, err)
	replaceBySymlink(cniFile)
	if err := cni.Update("f", func(i *Info) (*Info, error) { return pciInfo(), nil }); err == nil {
		t.Error("Update follows a symlink")
	}
	testkit.Must(t, cni.Write("f", pciInfo()))
	replaceBySymlink(cniFile)
	testkit.Must(t, cni.Remove("f"))
	for _, p := range []string{dpFile} {
		if m := modeOf(t, filepath.Join(root, p)); m != 0o644 {
			t.Errorf("%s has mode %v, want a regular file in place of the symlink", p, m)
		}
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "untouched" || modeOf(t, victim) != 0o600 {
		t.Errorf("target of the symlink: %q, %v", b, err)
	}
	// A directory at the path is an error, and no temporary file is left.
	testkit.Must(t, os.Mkdir(filepath.Join(root, cniFile), 0o755))
	if err := cni.Write("f", pciInfo()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("directory at the path: %v", err)
	}
	if err := cni.Remove("f"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("directory at the path: %v", err)
	}
	if got := listNames(t, filepath.Join(root, DefaultCNIDir)); !slices.Equal(got, []string{lockName, "f"}) {
		t.Errorf("left: %v", got)
	}
}

func TestConcurrentWritersLoseNothing(t *testing.T) {
	root, dir := newTestNode(t)
	cni := CNIDir{Root: root}
	testkit.Must(t, cni.Write("f", pciInfo()))
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := cni.Read("f"); err != nil {
				t.Errorf("concurrent reader: %v", err)
				return
			}
		}
	})
	const n, each = 4, 15
	for w := range n {
		writers.Go(func() {
			for i := range each {
				var err error
				// On a busy machine or a slow disk, another writer may hold the lock for
				// longer than the timeout.
				testkit.Until(func() bool {
					err = cni.Update("f", func(info *Info) (*Info, error) {
						if info.Extra == nil {
							info.Extra = map[string]json.RawMessage{}
						}
						info.Extra[fmt.Sprintf("%d-%d", w, i)] = json.RawMessage("1")
						return info, nil
					})
					return !errdefs.IsUnavailable(err)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	got, err := cni.Read("f")
	testkit.Must(t, err)
	if len(got.Extra) != n*each {
		t.Errorf("the file has %d of %d updates", len(got.Extra), n*each)
	}
	if got := listNames(t, dir); !slices.Equal(got, []string{lockName, "f"}) {
		t.Errorf("left: %v", got)
	}
	if m := modeOf(t, filepath.Join(dir, lockName)); m != 0o600 {
		t.Errorf("the lock has mode %v: other users could lock it", m)
	}
}

func TestHangingWriterDoesNotBlockOthers(t *testing.T) {
	root, _ := newTestNode(t)
	host, err := openRoot(root)
	testkit.Must(t, err)
	d, err := openDir(host, DefaultCNIDir)
	testkit.Must(t, err)
	defer d.Close()
	err = d.withLock(time.Minute, func() error {
		return d.withLock(30*time.Millisecond, func() error { t.Error("two writers hold the lock"); return nil })
	})
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), lockName) {
		t.Errorf("got %v, want unavailable with the name of the lock", err)
	}
	ran := false
	if err := d.withLock(0, func() error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("free lock: %v", err)
	}
}

func TestTemporaryFilesAreIgnored(t *testing.T) {
	root, dir := newTestNode(t)
	tmp := ".jackfield-n-" + testID + "_net1.tmp"
	for _, name := range []string{tmp, lockName, ".jackfield-X-" + testID + "_a"} {
		writeFile(t, dir, name, "{")
	}
	if es, err := (CNIDir{Root: root}).ReadSandbox(testID); err != nil || es != nil {
		t.Errorf("ReadSandbox = %+v, %v", es, err)
	}
	cni := CNIDir{Root: root}
	if es, err := cni.List(); err != nil || len(es) != 0 {
		t.Errorf("List = %+v, %v", es, err)
	}
}
