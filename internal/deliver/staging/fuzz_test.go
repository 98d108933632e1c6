// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/edit"
)

// Files of the state directory and of /proc are decoded correctly or rejected. No content leads to an
// unmount or a removal outside of the container's directory and the socket roots.
func FuzzRecords(f *testing.F) {
	for _, data := range []string{
		`{"owner":"hook","view":{"pids":1,"mounts":2,"at":3},"dirs":[{"path":"net"},{"path":"net/net1","scratch":true}],"sockets":[{"root":"/r","rel":"a/b.sock","at":["net/net1/b.sock"],"access":{"method":"acl","user":{"uid":1,"gid":2}}}],"socketDirs":[{"root":"/r","rel":"c","at":"net","access":{"method":"acl","user":{"uid":1,"gid":0}}}],"bundle":"/b/c"}`,
		`{"dirs":[{"path":"../x"}]}`, `{"dirs":[{"path":"a"}],"sockets":[{"root":"/r","rel":"a","at":["a/../../x"]}]}`, `{"ow`, `null`,
		"7 /run/x/c1", "7 x", "8 /run/x/c1", " /a\x00",
		"12 (a) b) S 1 1 1 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 12345 0", "12 (a S 1", "1 (a) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 -5 0",
		"30 25 0:26 /run/containers/c1/net /a rw shared:1 - tmpfs t rw\n", "1 2 0:3 /containers/a/containers/b x\n", "%2F%25%252F",
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzRecord(t, data)
		text := string(data)

		see := hostView{Mounts: 7}
		if bundle := parseBundle(text, see); bundle != "" && (!path.IsAbs(bundle) || text != strconv.FormatUint(see.Mounts, 10)+" "+bundle) {
			t.Errorf("the bundle of %q is %q", text, bundle)
		}
		if seconds, kernel, ok := parseProcStat(text); seconds < 0 || !ok && (seconds != 0 || kernel) {
			t.Errorf("%q was started at %d, %v, %v", text, seconds, kernel, ok)
		}
		alive := map[string]bool{}
		addMountedContainers(data, []byte("/containers/"), alive)
		for id := range alive {
			if strings.ContainsAny(id, "/ \n") || !strings.Contains(text, "/containers/"+id) {
				t.Errorf("%q has %q mounted", text, id)
			}
		}
	})
}

func fuzzRecord(t *testing.T, data []byte) {
	in := (&records{}).in("s1")
	r, err := in.Decode("c1.container", data)
	if err != nil {
		return
	}
	if r.ID != "c1" || r.SandboxID != "s1" || len(r.Files) > 0 {
		t.Errorf("%q decoded to the record %+v", data, r)
	}
	for _, p := range append(mountPoints(&r.Container), pathsOf(r.Dirs)...) {
		if at := filepath.Join("/state/containers/c1", p); !strings.HasPrefix(at, "/state/containers/c1/") {
			t.Errorf("%q leads to %q", data, at)
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := in.Decode("c1.container", text); err != nil || !sameJSON(again, r) {
		t.Errorf("%q is encoded as %s, which is decoded to %+v, %v", data, text, again, err)
	}
}

func pathsOf(dirs []edit.Dir) (paths []string) {
	for _, d := range dirs {
		paths = append(paths, d.Path)
	}
	return paths
}

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}
