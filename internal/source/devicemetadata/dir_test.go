// SPDX-License-Identifier: Apache-2.0

package devicemetadata_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/devicemetadata"
)

const plugins = "/var/lib/kubelet/plugins"

// tree is a host with a plugins' directory.
type tree struct {
	t    *testing.T
	root string
	dir  devicemetadata.Dir
}

func newTree(t *testing.T) *tree {
	t.Helper()
	host, err := hostfs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &tree{t, host.Dir(), devicemetadata.Dir{Host: host, Path: plugins}}
}

// path returns where a file below the plugins' directory is, and creates its directory.
func (tr *tree) path(rel string) string {
	tr.t.Helper()
	file := filepath.Join(tr.root, plugins, rel)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	return file
}

func (tr *tree) write(rel, text string) {
	tr.t.Helper()
	if err := os.WriteFile(tr.path(rel), []byte(text), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

const claimDir = "d.example.com/dra-device-metadata/ns_claim/"

// states returns the request and error of each file, as text.
func states(files []devicemetadata.File) string {
	var lines []string
	for _, f := range files {
		text := "ok"
		if f.Err != nil {
			text = f.Err.Error()
		}
		lines = append(lines, f.Request+": "+text)
	}
	return strings.Join(lines, "\n")
}

func TestReadClaimChecksFiles(t *testing.T) {
	tr := newTree(t)
	good := object(beta, "", "")
	tr.write(claimDir+"vf/metadata.json", good)
	tr.write(claimDir+"claim/metadata.json", strings.Replace(strings.Replace(good, `"vf"`, `"claim/sub"`, 1), `"name": "claim"`, `"name": "other"`, 1))
	tr.write(claimDir+"namespace/metadata.json", strings.Replace(good, `"ns"`, `"victim"`, 1))
	tr.write(claimDir+"request/metadata.json", good)
	tr.write(claimDir+"driver/metadata.json", strings.Replace(strings.Replace(good, `"vf"`, `"driver"`, 1), "d.example.com", "e.example.com", 1))
	tr.write(claimDir+"large/metadata.json", strings.Repeat(" ", devicemetadata.MaxSize+1))
	tr.write(claimDir+"faulty/metadata.json", "{")
	tr.write("elsewhere/metadata.json", strings.Replace(good, `"vf"`, `"link"`, 1))
	for link, target := range map[string]string{"link/metadata.json": "../../../../elsewhere/metadata.json", "linkdir": "../../../elsewhere"} {
		if err := os.Symlink(target, tr.path(claimDir+link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(tr.path(claimDir+"pipe/metadata.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(tr.path(claimDir+"new/"), 0o755); err != nil { // not written yet
		t.Fatal(err)
	}
	tr.write(claimDir+"notadir", "")
	tr.write(claimDir+".hidden/metadata.json", "{")
	files, err := tr.dir.ReadClaim("d.example.com", "ns", "claim")
	if err != nil {
		t.Fatal(err)
	}
	const at = plugins + "/" + claimDir
	want := `claim: ` + at + `claim/metadata.json: metadata.name: invalid value "other": must be "claim", as in the file's path
driver: ` + at + `driver/metadata.json: requests[0].devices[0].driver: invalid value "e.example.com": must be "d.example.com", as in the file's path
faulty: ` + at + `faulty/metadata.json:1:2: found the end of the text: a key in double quotation marks is required: the text is cut short
large: read device metadata "` + at + `large/metadata.json": it has 1048577 bytes, more than the 1048576 allowed
link: read device metadata "` + at + `link/metadata.json": there is a symlink on the path, and none is followed there
linkdir: read device metadata "` + at + `linkdir/metadata.json": there is a symlink on the path, and none is followed there
namespace: ` + at + `namespace/metadata.json: metadata.namespace: invalid value "victim": must be "ns", as in the file's path
pipe: read device metadata "` + at + `pipe/metadata.json": it is a FIFO, not a regular file
request: ` + at + `request/metadata.json: requests[0].name: invalid value "vf": must be "request", as in the file's path
vf: ok`
	if got := states(files); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReadClaimStaysInDirectory(t *testing.T) {
	tr := newTree(t)
	tr.write(claimDir+"vf/metadata.json", object(beta, "", ""))
	for _, names := range [][3]string{{"..", "ns", "claim"}, {"", "ns", "claim"}, {"d.example.com", "../x", "claim"}, {"d.example.com", "ns", "claim/.."}, {"d.example.com", "a_ns", "claim"}} {
		if files, err := tr.dir.ReadClaim(names[0], names[1], names[2]); err == nil || len(files) > 0 {
			t.Errorf("%q: %v, %v", names, states(files), err)
		}
	}
	for _, names := range [][3]string{{"x.example.com", "ns", "claim"}, {"d.example.com", "ns", "x"}} {
		if files, err := tr.dir.ReadClaim(names[0], names[1], names[2]); err != nil || len(files) > 0 {
			t.Errorf("%q: %v, %v", names, states(files), err)
		}
	}
}

func TestListReadsFilesOfAllDrivers(t *testing.T) {
	tr := newTree(t)
	if files, err := tr.dir.List(); err != nil || len(files) != 0 {
		t.Errorf("without a directory: %v, %v", states(files), err)
	}
	tr.write(claimDir+"vf/metadata.json", object(beta, "", ""))
	tr.write("a.example.com/dra-device-metadata/ns_claim/b/metadata.json", "{}")
	tr.write("a.example.com/dra-device-metadata/other/b/metadata.json", "{}")
	tr.write("csi.example.com/csi.sock", "")
	tr.write("kubernetes.io", "")
	files, err := tr.dir.List()
	if err != nil || len(files) != 2 || files[0].Driver != "a.example.com" || files[0].Err == nil || files[1].Err != nil {
		t.Errorf("%v, %v", states(files), err)
	}
	for _, f := range files {
		if at, ok := tr.dir.Locate(f.Path); !ok || at.Driver != f.Driver || at.Namespace != f.Namespace || at.Claim != f.Claim || at.Request != f.Request {
			t.Errorf("%s is %+v, %v", f.Path, at, ok)
		}
	}
	for _, file := range []string{"", plugins, plugins + "/d/dra-device-metadata/ns_c/r/x.json", plugins + "/d/x/ns_c/r/metadata.json", "/x" + plugins + "/d/dra-device-metadata/ns_c/r/metadata.json", plugins + "/d/dra-device-metadata/nsc/r/metadata.json"} {
		if at, ok := tr.dir.Locate(file); ok {
			t.Errorf("%s is %+v", file, at)
		}
	}
}
