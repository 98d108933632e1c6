// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// hostileFiles are file types and contents in place of a valid file.
var hostileFiles = []struct {
	name string
	make func(t *testing.T, path string)
}{
	{"FIFO", func(t *testing.T, path string) { testkit.Must(t, unix.Mkfifo(path, 0o600)) }},
	{"directory", func(t *testing.T, path string) { testkit.Must(t, os.Mkdir(path, 0o755)) }},
	{"socket", func(t *testing.T, path string) { testkit.Must(t, unix.Mknod(path, unix.S_IFSOCK|0o600, 0)) }},
	{"sparse file of 1 GiB", func(t *testing.T, path string) {
		testkit.Must(t, os.WriteFile(path, nil, 0o600))
		testkit.Must(t, os.Truncate(path, 1<<30))
	}},
	{"symlink to a good file", func(t *testing.T, path string) {
		good := filepath.Join(t.TempDir(), "good")
		testkit.Must(t, os.WriteFile(good, []byte(validCache(path)), 0o600))
		testkit.Must(t, os.Symlink(good, path))
	}},
	{"symlink to a neighbouring file", func(t *testing.T, path string) {
		testkit.Must(t, os.WriteFile(path+"-good", []byte(validCache(path)), 0o600))
		testkit.Must(t, os.Symlink(filepath.Base(path)+"-good", path))
	}},
	{"symlink to itself", func(t *testing.T, path string) { testkit.Must(t, os.Symlink(filepath.Base(path), path)) }},
	{"empty file", writeContent("")},
	{"not UTF-8", writeContent("[{\"Name\":\"ns/net\xff\"}]")},
	{"truncated", func(t *testing.T, path string) {
		good := validCache(path)
		writeContent(good[:len(good)/2])(t, path)
	}},
	{"deeply nested list", writeContent(strings.Repeat("[", 1<<19))},
	{"deeply nested map", writeContent(`[{"Name":` + strings.Repeat(`{"a":`, 1<<17) + "1")},
	{"string", writeContent(`"text"`)},
	{"list of numbers", writeContent(`[1,2,3]`)},
	{"duplicate key", writeContent(`[{"Name":"ns/net","Name":"ns/other"}]`)},
	{"garbage after the end", writeContent(`[] []`)},
	{"NUL bytes", writeContent(strings.Repeat("\x00", 4096))},
	{"more than 1 MiB", writeContent("[" + strings.Repeat(" ", 1<<20) + "]")},
}

func writeContent(s string) func(*testing.T, string) {
	return func(t *testing.T, path string) { testkit.Must(t, os.WriteFile(path, []byte(s), 0o600)) }
}

// validCache returns the content that Multus or libcni writes to the path.
func validCache(path string) string {
	if strings.Contains(path, "/results/") {
		return cniResult("net", sandbox, "net1", devB)
	}
	return `[{"Name":"cbr0"},{"Name":"ns/net","deviceID":"` + devB + `","resourceName":"intel.com/vf"}]`
}

// A hostile file at the path of a record of Multus or libcni is ignored quickly.
func TestHostileRecordIsIgnoredQuickly(t *testing.T) {
	for _, where := range []string{multusRecordPath, filepath.Join(multusDir, "results", "net-"+sandbox+"-net1")} {
		for _, h := range hostileFiles {
			t.Run(filepath.Base(filepath.Dir(where))+"/"+h.name, func(t *testing.T) {
				n := newNode(t)
				n.allocate("c1: intel.com/vf=" + devA)
				n.writeCNIFile("ns/net", "net1", pciInfo(devA))
				n.writeCNIFile("ns/sock", "net2", vhostInfo)
				h.make(t, n.path(where))
				f := n.newFinder()
				var as []Attachment
				var err error
				testkit.Cheap(t, time.Second, func() { as, err = f.findNetworks(t.Context(), newQuery()) })
				testkit.Must(t, err)
				a := findByIfName(t, as, "net1")
				if a.Err != nil || a.Owner != OwnedHere || a.DeviceID != devA {
					t.Errorf("the device is affected: %+v", a)
				}
				if !hasNote(a, "ignored") || !hasNote(a, where) {
					t.Errorf("no note names the file: %q", a.Notes)
				}
				if a := findByIfName(t, as, "net2"); a.Err != nil || a.Info == nil {
					t.Errorf("the socket is affected: %+v", a)
				}
			})
		}
	}
}

// libcni's record of another attachment is ignored, whatever its file name.
func TestResultOfAnotherAttachment(t *testing.T) {
	for _, text := range []string{
		cniResult("net", "another", "net1", devB), cniResult("net", sandbox, "net2", devB), cniResult("other", sandbox, "net1", devB),
		strings.Replace(cniResult("net", sandbox, "net1", devB), cacheKind, "cniCacheV9", 1),
	} {
		n := newNode(t)
		n.allocate("c1: intel.com/vf=" + devA)
		n.writeCNIFile("ns/net", "net1", pciInfo(devA))
		n.write(filepath.Join(multusDir, "results", "net-"+sandbox+"-net1"), text)
		as, err := n.newFinder().findNetworks(t.Context(), newQuery())
		if a := wantOneAttachment(t, as, err); a.Err != nil || a.DeviceID != devA || !hasNote(a, "ignored") {
			t.Errorf("%s: %+v", text, a)
		}
	}
}

// A hostile file of a device plugin causes an error of its device only.
func TestHostilePluginFileHarmsItsDeviceOnly(t *testing.T) {
	for _, h := range hostileFiles {
		t.Run(h.name, func(t *testing.T) {
			n := newNode(t)
			n.allocate("c1: intel.com/vf=" + devA + "," + devB)
			n.writeDPFile(vf, devB, pciInfo(devB))
			file := n.writeDPFile(vf, devA, "")
			testkit.Must(t, os.Remove(n.path(file)))
			h.make(t, n.path(file))
			f := n.newFinder()
			var as []Attachment
			var err error
			testkit.Cheap(t, time.Second, func() { as, err = f.Search(t.Context(), newQuery()).Resource(vf, "") })
			testkit.Must(t, err)
			for _, a := range as {
				if (a.Err == nil) != (a.DeviceID == devB) {
					t.Errorf("device %s: %v", a.DeviceID, a.Err)
				}
			}
		})
	}
}

// A sandbox ID is the name of a file in Multus' directory, never a path.
func TestSandboxIDIsNoPath(t *testing.T) {
	n := newNode(t)
	n.write("/var/lib/cni/secret", `[{"Name":"ns/net"}]`)
	for _, id := range []string{"../secret", "..", ".", "results", "results/x", "x\x00y", strings.Repeat("x", 300)} {
		q := newQuery()
		q.SandboxID, q.Networks = id, "ns/net"
		as, err := n.newFinder().findNetworks(t.Context(), q)
		for _, a := range as {
			if a.IfName == "eth0" {
				t.Errorf("sandbox ID %q: read %+v", id, a)
			}
		}
		t.Log(len(as), err)
	}
}

// The work for one sandbox is bounded, with hundreds of files, and thousands of IDs and variables.
func TestTooManyEntries(t *testing.T) {
	n := newNode(t)
	n.allocate("c1: intel.com/vf=" + devA)
	for i := range 900 {
		n.writeCNIFile("ns/n"+strings.Repeat("x", i%100), "net"+string(rune('a'+i%26))+strings.Repeat("y", i%9), pciInfo(devA))
	}
	env := []string{"PCIDEVICE_A=" + strings.Repeat("port,", 1<<16), "PCIDEVICE_B_INFO={" + strings.Repeat(`"x":{},`, 1<<16)}
	for i := range 900 {
		env = append(env, "PCIDEVICE_"+strings.Repeat("X", i+1)+"=a,b,c,d,e,f,g")
	}
	q := newQuery(env...)
	q.Networks = strings.Repeat("ns/x,", 10000)
	f := n.newFinder()
	var as []Attachment
	var err error
	testkit.Cheap(t, 2*time.Second, func() { as, err = f.findNetworks(t.Context(), q) })
	testkit.Must(t, err)
	for _, a := range as {
		if a.Err == nil {
			t.Errorf("no conflict: %+v", a)
		}
	}
}

// Without a kubelet, the names of the device plugins' files determine the resource of a
// variable. Here four variables have a thousand IDs each, with as many files.
func TestManyVariablesAndFilesAreCheap(t *testing.T) {
	n := newNode(t)
	for i := range 1000 {
		n.writeDPFile("example.org/x", fmt.Sprintf("id%d", i), vhostInfo)
	}
	n.writeDPFile("acme.com/vf", "id7", pciInfo(devA))
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("id%d", i))
	}
	list := strings.Join(ids, ",")
	env := []string{"PCIDEVICE_ACME_COM_VF=" + list, "PCIDEVICE_A=" + list, "PCIDEVICE_B=" + list, "PCIDEVICE_C=" + list}
	f := n.newFinder()
	var as []Attachment
	var err error
	testkit.Cheap(t, 2*time.Second, func() { _, as, err = f.Search(t.Context(), newQuery(env...)).Find() })
	if a := wantOneAttachment(t, as, err); a.Resource != "acme.com/vf" || a.Device != devA {
		t.Errorf("got %+v", a)
	}
	// More variables than the limit are ignored.
	for i := range 13 {
		env = append(env, fmt.Sprintf("PCIDEVICE_X%d=%s", i, list))
	}
	e, notes := parseEnvironment(env)
	if len(e) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "more than 16384 device IDs") {
		t.Errorf("parsed %d variables, notes %q", len(e), notes)
	}
}

// readCache accepts file names only: it reads no file in a subdirectory.
func TestReadCacheTakesNames(t *testing.T) {
	n := newNode(t)
	n.write(multusDir+"/results/x", "{}")
	for _, name := range []string{"results/x", "../multus/results/x", ".", "", "results/../results/x"} {
		if data, err := readCache(n.root, multusDir, name); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: read %q, %v", name, data, err)
		}
	}
	if _, err := readCache(n.root, multusDir, "results", "x"); err != nil {
		t.Error(err)
	}
}

// An environment with too many variables of device plugins is ignored.
func TestEnvironmentOfManyVariables(t *testing.T) {
	var env []string
	for i := range maxEnvVars {
		env = append(env, fmt.Sprintf("%sX%d=0000:00:00.0", envPrefix, i))
	}
	if e, notes := parseEnvironment(env); len(e) != maxEnvVars || len(notes) > 0 {
		t.Errorf("%d variables: parsed %d, notes %q", maxEnvVars, len(e), notes)
	}
	if e, notes := parseEnvironment(append(env, envPrefix+"Y=0000:00:00.0")); len(e) != 0 || len(notes) != 1 {
		t.Errorf("one variable too many: parsed %d, notes %q", len(e), notes)
	}
}
