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

	"github.com/jackfield/jackfield/pkg/busytest"
)

// hostile are things that somebody may put where a file is read.
var hostile = []struct {
	name string
	make func(t *testing.T, path string)
}{
	{"FIFO", func(t *testing.T, path string) { check(t, unix.Mkfifo(path, 0o600)) }},
	{"directory", func(t *testing.T, path string) { check(t, os.Mkdir(path, 0o755)) }},
	{"socket", func(t *testing.T, path string) { check(t, unix.Mknod(path, unix.S_IFSOCK|0o600, 0)) }},
	{"sparse file of 1 GiB", func(t *testing.T, path string) {
		check(t, os.WriteFile(path, nil, 0o600))
		check(t, os.Truncate(path, 1<<30))
	}},
	{"symlink to a good file", func(t *testing.T, path string) {
		good := filepath.Join(t.TempDir(), "good")
		check(t, os.WriteFile(good, []byte(goodCache(path)), 0o600))
		check(t, os.Symlink(good, path))
	}},
	{"symlink beside it", func(t *testing.T, path string) {
		check(t, os.WriteFile(path+"-good", []byte(goodCache(path)), 0o600))
		check(t, os.Symlink(filepath.Base(path)+"-good", path))
	}},
	{"symlink to itself", func(t *testing.T, path string) { check(t, os.Symlink(filepath.Base(path), path)) }},
	{"empty file", content("")},
	{"not UTF-8", content("[{\"Name\":\"ns/net\xff\"}]")},
	{"truncated", func(t *testing.T, path string) {
		good := goodCache(path)
		content(good[:len(good)/2])(t, path)
	}},
	{"deeply nested list", content(strings.Repeat("[", 1<<19))},
	{"deeply nested map", content(`[{"Name":` + strings.Repeat(`{"a":`, 1<<17) + "1")},
	{"another type", content(`"text"`)},
	{"a list of numbers", content(`[1,2,3]`)},
	{"a key twice", content(`[{"Name":"ns/net","Name":"ns/other"}]`)},
	{"garbage behind the end", content(`[] []`)},
	{"NUL bytes", content(strings.Repeat("\x00", 4096))},
	{"more than 1 MiB", content("[" + strings.Repeat(" ", 1<<20) + "]")},
}

func content(s string) func(*testing.T, string) {
	return func(t *testing.T, path string) { check(t, os.WriteFile(path, []byte(s), 0o600)) }
}

// goodCache is what Multus and libcni would have written there.
func goodCache(path string) string {
	if strings.Contains(path, "/results/") {
		return resultOf("net", sandbox, "net1", devB)
	}
	return `[{"Name":"cbr0"},{"Name":"ns/net","deviceID":"` + devB + `","resourceName":"intel.com/vf"}]`
}

// Whatever lies where Multus and libcni keep their records costs no time, and
// does no harm but that it is not used.
func TestHostileCaches(t *testing.T) {
	for _, where := range []string{scratch, filepath.Join(multusDir, "results", "net-"+sandbox+"-net1")} {
		for _, h := range hostile {
			t.Run(filepath.Base(filepath.Dir(where))+"/"+h.name, func(t *testing.T) {
				n := newNode(t)
				n.gives("c1: intel.com/vf=" + devA)
				n.cni("ns/net", "net1", pciInfo(devA))
				n.cni("ns/sock", "net2", vhostInfo)
				h.make(t, n.path(where))
				f := n.finder()
				var as []Attachment
				var err error
				busytest.Cheap(t, time.Second, func() { as, err = f.Sandbox(t.Context(), query()) })
				check(t, err)
				a := byIfName(t, as, "net1")
				if a.Err != nil || a.Owner != OwnedHere || a.DeviceID != devA {
					t.Errorf("the device is harmed: %+v", a)
				}
				if !hasNote(a, "not used") || !hasNote(a, where) {
					t.Errorf("no note names the file: %q", a.Notes)
				}
				if a := byIfName(t, as, "net2"); a.Err != nil || a.Info == nil {
					t.Errorf("the socket is harmed: %+v", a)
				}
			})
		}
	}
}

// libcni's record of another attachment, whatever its name, says nothing.
func TestResultOfAnother(t *testing.T) {
	for _, text := range []string{
		resultOf("net", "another", "net1", devB), resultOf("net", sandbox, "net2", devB), resultOf("other", sandbox, "net1", devB),
		strings.Replace(resultOf("net", sandbox, "net1", devB), cacheKind, "cniCacheV9", 1),
	} {
		n := newNode(t)
		n.gives("c1: intel.com/vf=" + devA)
		n.cni("ns/net", "net1", pciInfo(devA))
		n.put(filepath.Join(multusDir, "results", "net-"+sandbox+"-net1"), text)
		as, err := n.finder().Sandbox(t.Context(), query())
		if a := one(t, as, err); a.Err != nil || a.DeviceID != devA || !hasNote(a, "not used") {
			t.Errorf("%s: %+v", text, a)
		}
	}
}

// The same for the device plugin's file, which is the last word on a resource's
// device: that device alone is an error.
func TestHostilePluginFile(t *testing.T) {
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			n := newNode(t)
			n.gives("c1: intel.com/vf=" + devA + "," + devB)
			n.dp(vf, devB, pciInfo(devB))
			file := n.dp(vf, devA, "")
			check(t, os.Remove(n.path(file)))
			h.make(t, n.path(file))
			f := n.finder()
			var as []Attachment
			var err error
			busytest.Cheap(t, time.Second, func() { as, err = f.Resource(t.Context(), query(), vf, "") })
			check(t, err)
			for _, a := range as {
				if (a.Err == nil) != (a.DeviceID == devB) {
					t.Errorf("device %s: %v", a.DeviceID, a.Err)
				}
			}
		})
	}
}

// A sandbox ID is a file's name below Multus' directory and nothing else.
func TestSandboxIDLeadsNowhere(t *testing.T) {
	n := newNode(t)
	n.put("/var/lib/cni/secret", `[{"Name":"ns/net"}]`)
	for _, id := range []string{"../secret", "..", ".", "results", "results/x", "x\x00y", strings.Repeat("x", 300)} {
		q := query()
		q.SandboxID, q.Networks = id, "ns/net"
		as, err := n.finder().Sandbox(t.Context(), q)
		for _, a := range as {
			if a.IfName == "eth0" {
				t.Errorf("%q: read %+v", id, a)
			}
		}
		t.Log(len(as), err)
	}
}

// Thousands of files of one sandbox, thousands of IDs and variables.
func TestHostileAmounts(t *testing.T) {
	n := newNode(t)
	n.gives("c1: intel.com/vf=" + devA)
	for i := range 900 {
		n.cni("ns/n"+strings.Repeat("x", i%100), "net"+string(rune('a'+i%26))+strings.Repeat("y", i%9), pciInfo(devA))
	}
	env := []string{"PCIDEVICE_A=" + strings.Repeat("port,", 1<<16), "PCIDEVICE_B_INFO={" + strings.Repeat(`"x":{},`, 1<<16)}
	for i := range 900 {
		env = append(env, "PCIDEVICE_"+strings.Repeat("X", i+1)+"=a,b,c,d,e,f,g")
	}
	q := query(env...)
	q.Networks = strings.Repeat("ns/x,", 10000)
	f := n.finder()
	var as []Attachment
	var err error
	busytest.Cheap(t, 2*time.Second, func() { as, err = f.Sandbox(t.Context(), q) })
	check(t, err)
	for _, a := range as {
		if a.Err == nil {
			t.Errorf("a clash went unseen: %+v", a)
		}
	}
}

// Where no kubelet tells, the names of device plugins' files tell which resource a
// variable stands for: a thousand IDs in each of four variables, and as many files.
func TestHostileVariables(t *testing.T) {
	n := newNode(t)
	for i := range 1000 {
		n.dp("example.org/x", fmt.Sprintf("id%d", i), vhostInfo)
	}
	n.dp("acme.com/vf", "id7", pciInfo(devA))
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("id%d", i))
	}
	list := strings.Join(ids, ",")
	env := []string{"PCIDEVICE_ACME_COM_VF=" + list, "PCIDEVICE_A=" + list, "PCIDEVICE_B=" + list, "PCIDEVICE_C=" + list}
	f := n.finder()
	var as []Attachment
	var err error
	busytest.Cheap(t, 2*time.Second, func() { _, as, err = f.Find(t.Context(), query(env...)) })
	if a := one(t, as, err); a.Resource != "acme.com/vf" || a.Device != devA {
		t.Errorf("found %+v", a)
	}
	// More than that no container has.
	e, notes := parseEnvironment(append(env, "PCIDEVICE_D="+list))
	if len(e) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "more than 4096 device IDs") {
		t.Errorf("found %d variables, %q", len(e), notes)
	}
}

// The name of a cached file is one element: no file below a directory of the cache is read.
func TestReadCacheTakesNames(t *testing.T) {
	n := newNode(t)
	n.put(multusDir+"/results/x", "{}")
	for _, name := range []string{"results/x", "../multus/results/x", ".", "", "results/../results/x"} {
		if data, err := readCache(n.root, multusDir, name); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: read %q, %v", name, data, err)
		}
	}
	if _, err := readCache(n.root, multusDir, "results", "x"); err != nil {
		t.Error(err)
	}
}

// More variables of device plugins than any container has are not read at all.
func TestEnvironmentOfManyVariables(t *testing.T) {
	var env []string
	for i := range maxEnvVars {
		env = append(env, fmt.Sprintf("%sX%d=0000:00:00.0", envPrefix, i))
	}
	if e, notes := parseEnvironment(env); len(e) != maxEnvVars || len(notes) > 0 {
		t.Errorf("%d variables give %d, %q", maxEnvVars, len(e), notes)
	}
	if e, notes := parseEnvironment(append(env, envPrefix+"Y=0000:00:00.0")); len(e) != 0 || len(notes) != 1 {
		t.Errorf("one more gives %d, %q", len(e), notes)
	}
}
