// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/port/attach"
)

func TestCheckFindsChanges(t *testing.T) {
	n := newNode(t)
	keys := `, "runtimeConfig": {"ips": ["10.10.0.1/24"]}`
	a := n.mustRun(env("ADD", k8sArgs), confWith(keys))
	conf := func(prev string) string { return confWith(keys + `, "prevResult": ` + prev) }
	dir := filepath.Join(n.dir, attach.DefaultSocketDir, socketDirName("fast", testID, "net1"))
	name, content := n.readInfoFile()
	file := filepath.Join(n.dir, "/var/run/k8s.cni.cncf.io/devinfo/cni", name)
	replace := func(old, new string) string { return strings.Replace(a.out, old, new, 1) }
	check := func(what, prev, text string, code uint) {
		t.Helper()
		got := n.run(env("CHECK", k8sArgs), conf(prev))
		if got.code != code || !strings.Contains(got.all, text) {
			t.Errorf("%s: code %d, %s; want code %d with %q", what, got.code, got.all, code, text)
		}
	}
	check("nothing", a.out, "", 0)
	check("tuning changed the address", replace(`"name": "net1",`, `"name": "net1", "mac": "00:11:22:33:44:66",`), "", 0)
	check("no previous result", "null", "prevResult", codeConfig)
	check("no interface", `{"cniVersion": "1.1.0", "interfaces": []}`, "no interface", attach.CodeChanged)
	check("other sandbox", replace(ownNS, "/run/netns/x"), "/run/netns/x", attach.CodeChanged)
	check("other socket", replace("vhost-user.sock", "x.sock"), "x.sock", attach.CodeChanged)
	check("other address", replace("10.10.0.1/24", "10.10.0.2/24"), "10.10.0.1/24", attach.CodeChanged)
	// The code of a container that is unknown says that there is nothing to DEL.
	gone := func() answer { return n.run(env("CHECK", "CNI_NETNS=/run/netns/gone"), conf(a.out)) }
	if got := gone(); got.code != attach.CodeChanged || !strings.Contains(got.all, "/run/netns/gone") {
		t.Errorf("no network namespace: code %d, %s", got.code, got.all)
	}

	testkit.Must(t, os.WriteFile(file, []byte(strings.Replace(content, `"server"`, `"client"`, 1)), 0o644))
	check("other device", a.out, "client", attach.CodeChanged)
	testkit.Must(t, os.Remove(file))
	check("no file", a.out, "device-info file", attach.CodeChanged)
	testkit.Must(t, os.WriteFile(file, []byte(content), 0o644))
	testkit.Must(t, os.Rename(dir, dir+"x"))
	check("no directory", a.out, "socket directory", attach.CodeChanged)
	testkit.Must(t, os.Symlink(dir+"x", dir))
	check("a symlink", a.out, "socket directory", attach.CodeChanged)
	testkit.Must(t, os.Remove(dir))
	testkit.Must(t, os.Rename(dir+"x", dir))
	check("all is well again", a.out, "", 0)
	n.mustRun(env("DEL"), confWith(""))
	check("after DEL", a.out, "record", attach.CodeChanged)
	if got := gone(); got.code != codeContainer {
		t.Errorf("no container: code %d, %s", got.code, got.all)
	}
	if got := n.run(env("CHECK"), strings.Replace(conf(a.out), "1.1.0", "0.3.1", 1)); got.code != codeVersion {
		t.Errorf("0.3.1 has no CHECK: code %d, %s", got.code, got.all)
	}
}

// After other plugins, CHECK compares the addresses that the runtime requested. The interface is theirs.
func TestCheckAfterOtherPlugins(t *testing.T) {
	n := newNode(t)
	const prev = `{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "` + ownNS + `"}], "ips": [{"address": "10.10.0.1/24", "interface": 0}]}`
	conf := func(prev string) string {
		return confWith(`, "runtimeConfig": {"ips": ["10.10.0.1/24"]}, "prevResult": ` + prev)
	}
	n.mustRun(env("ADD"), conf(prev))
	n.mustRun(env("CHECK"), conf(prev))
	a := n.run(env("CHECK"), conf(strings.Replace(prev, "10.10.0.1", "10.10.0.2", 1)))
	if a.code != attach.CodeChanged || !strings.Contains(a.all, "10.10.0.1/24") {
		t.Errorf("another address: code %d, %s", a.code, a.all)
	}
	n.mustRun(env("DEL"), conf(prev))
}

// Operations that create no attachment create no directory either. ADD refuses the directories that STATUS refuses.
func TestDelCheckAndGCCreateNoDirectory(t *testing.T) {
	n := newNode(t)
	n.mustRun(env("DEL"), confWith(""))
	n.mustRun(env("GC"), confWith(`, "cni.dev/valid-attachments": []`))
	if a := n.run(env("CHECK"), confWith(`, "prevResult": {}`)); a.code != attach.CodeChanged {
		t.Errorf("CHECK: code %d, %s", a.code, a.all)
	}
	if list, err := os.ReadDir(n.dir); err != nil || len(list) > 0 {
		t.Errorf("made %v, %v", list, err)
	}
	info := filepath.Join(n.dir, "/var/run/k8s.cni.cncf.io/devinfo/cni")
	testkit.Must(t, os.MkdirAll(info, 0o755))
	testkit.Must(t, os.Chmod(info, 0o777))
	for command, code := range map[string]uint{"STATUS": types.ErrPluginNotAvailable, "ADD": codeConfig} {
		if a := n.run(env(command), confWith("")); a.code != code || !strings.Contains(a.all, "chmod go-w") {
			t.Errorf("%s with a device-info directory that everybody can write to: code %d, %s", command, a.code, a.all)
		}
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// A symlink in place of the attachment's directory leads DEL nowhere.
func TestDelFollowsNoSymlink(t *testing.T) {
	n := newNode(t)
	n.mustRun(env("ADD"), confWith(""))
	n.write("/precious/file", "")
	dir := filepath.Join(n.dir, attach.DefaultSocketDir, socketDirName("fast", testID, "net1"))
	testkit.Must(t, os.Remove(dir))
	testkit.Must(t, os.Symlink(filepath.Join(n.dir, "precious"), dir))
	n.mustRun(env("DEL"), confWith(""))
	if _, err := os.Stat(filepath.Join(n.dir, "precious/file")); err != nil {
		t.Error(err)
	}
	// What somebody put in the directory's place is theirs.
	if left := n.files(); len(left) != 1 || !strings.HasSuffix(dir, left[0]) {
		t.Errorf("left %q, want the symlink alone", left)
	}
}

// Multus 4.3 drops the keys of a network that its clusterNetwork names by path. ADD says so, and DEL removes everything
// with the record's own configuration of IPAM.
func TestDroppedKeys(t *testing.T) {
	n := newNode(t)
	dropped := func(ipam string) string {
		return `{"cniVersion": "1.1.0", "name": "fast", "type": "jackfield-cni", "dns": {}` + ipam + `}`
	}
	if a := n.run(env("ADD"), dropped("")); a.code != codeConfig || !strings.Contains(a.all, "clusterNetwork") {
		t.Errorf("ADD: code %d, %s", a.code, a.all)
	}
	if a := n.run(env("ADD"), confOf("1.1.0", `"socketDir": "/run/vsw"`)); strings.Contains(a.all, "clusterNetwork") {
		t.Errorf("ADD without a device alone: %s", a.all)
	}
	bin := t.TempDir()
	script := "#!/bin/sh\ninput=$(cat)\ncase $input in *ranges*) ;; *) echo '{\"code\": 7, \"msg\": \"no IP ranges\"}'; exit 1;; esac\n" +
		"echo $CNI_COMMAND >>" + bin + "/calls\n[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\": \"1.1.0\", \"ips\": [{\"address\": \"10.0.0.1/24\"}]}'\n"
	testkit.Must(t, os.WriteFile(filepath.Join(bin, "lease"), []byte(script), 0o755))
	n.mustRun(env("ADD", "CNI_PATH="+bin), confWith(`, "ipam": {"type": "lease", "ranges": []}`))
	n.mustRun(env("DEL", "CNI_PATH="+bin), dropped(`, "ipam": {"type": "lease"}`))
	calls, err := os.ReadFile(filepath.Join(bin, "calls"))
	testkit.Must(t, err)
	if string(calls) != "ADD\nDEL\n" {
		t.Errorf("the IPAM plugin ran %q", calls)
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// Without the key stateDir, which Multus drops, DEL finds a record in a directory that the node's configuration lists.
func TestDroppedStateDir(t *testing.T) {
	for _, list := range []string{"", "stateDirs: [/srv/*, /srv/empty, /srv/state]"} {
		n, dir := newNode(t), "/var/lib/cni/jackfield" // listed by default
		if list != "" {
			n.list(list)
			dir = "/srv/state"
		}
		n.mustRun(env("ADD"), confWith(`, "stateDir": "`+dir+`"`))
		n.mustRun(env("DEL"), `{"cniVersion": "1.1.0", "name": "fast", "type": "jackfield-cni"}`)
		records, err := os.ReadDir(filepath.Join(n.dir, dir))
		testkit.Must(t, err)
		if left := n.files(); len(left) > 0 || len(records) > 0 {
			t.Errorf("left %q and %v", left, records)
		}
	}
}

// DEL succeeds with a configuration that ADD refuses.
func TestDelIgnoresInvalidKeys(t *testing.T) {
	n := newNode(t)
	n.mustRun(env("ADD"), confWith(""))
	n.mustRun(env("DEL", "CNI_NETNS=", "CNI_ARGS=x", "CNI_PATH="), confOf("1.1.0", `"device": {"type": "?"}, "unknown": 1, "socketDir": "/etc", "dns": 1, "runtimeConfig": {"portMappings": [1]}, "prevResult": {"x": 1}`))
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	// The record says that no IPAM plugin allocated an address.
	n.mustRun(env("ADD"), confWith(""))
	if a := n.mustRun(env("DEL"), confWith(`, "ipam": {"type": "../x"}`)); !strings.Contains(a.stderr, "ipam.type") {
		t.Errorf("standard error: %s", a.stderr)
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	// Not even a first time is needed.
	newNode(t).mustRun(env("DEL"), confWith(""))
}

func TestGCRemovesAttachmentsThatAreNotValid(t *testing.T) {
	n := newNode(t)
	for _, id := range []string{"a", "b", "c"} {
		n.mustRun(env("ADD", "CNI_CONTAINERID="+id), confWith(""))
	}
	other := strings.Replace(confWith(""), `"fast"`, `"other"`, 1)
	n.mustRun(env("ADD", "CNI_CONTAINERID=d"), other)
	n.write(attach.DefaultSocketDir+"/somebody/else", "")
	n.write("/var/run/k8s.cni.cncf.io/devinfo/cni/default-fast-z_net1", `{"type": "vhost-user"}`)
	gc := func(valid string) { n.mustRun(env("GC"), confWith(`, "cni.dev/valid-attachments": `+valid)) }
	left := func(id string) bool {
		return strings.Contains(strings.Join(n.files(), "\n"), "/"+socketDirName("fast", id, "net1"))
	}
	gc(`[{"containerID": "b", "ifname": "net1"}, {"containerID": "c", "ifname": "net2"}]`)
	if left("a") || !left("b") || left("c") {
		t.Errorf("left %q", n.files())
	}
	// An entry that names no attachment removes none.
	for _, valid := range []string{`[{"containerID": "b"}]`, `[{"ifname": "net1"}]`, `[{"id": "b", "if": "net1"}]`, `[null]`} {
		if a := n.run(env("GC"), confWith(`, "cni.dev/valid-attachments": `+valid)); a.code != codeConfig || !left("b") {
			t.Errorf("%s: code %d, %s; left %q", valid, a.code, a.all, n.files())
		}
	}
	gc(`null`)
	files := strings.Join(n.files(), "\n")
	if left("b") || !strings.Contains(files, socketDirName("other", "d", "net1")) || !strings.Contains(files, "somebody/else") || !strings.Contains(files, "fast-z_net1") {
		t.Errorf("left %q", files)
	}
	if a := n.run(env("GC"), confWith("")); a.code != codeConfig || !strings.Contains(a.msg, "cni.dev/valid-attachments") {
		t.Errorf("without a list: code %d, %s", a.code, a.all)
	}
	if a := n.run(env("GC"), confOf("1.0.0", `"cni.dev/valid-attachments": []`)); a.code != codeVersion {
		t.Errorf("1.0.0 has no GC: code %d, %s", a.code, a.all)
	}
	// What cannot be removed keeps nothing else from it.
	n.mustRun(env("ADD", "CNI_CONTAINERID=e"), confWith(""))
	broken := filepath.Join(n.dir, attach.DefaultStateDir, recordFileName("fast", "broken", "net1"))
	testkit.Must(t, os.Mkdir(broken, 0o700))
	if a := n.run(env("GC"), confWith(`, "cni.dev/valid-attachments": []`)); a.code != codeIO || !strings.Contains(a.all, "broken") || left("e") {
		t.Errorf("code %d, %s; left %q", a.code, a.all, n.files())
	}
	// A record that tells nothing is no such thing.
	testkit.Must(t, os.Remove(broken))
	testkit.Must(t, os.WriteFile(broken, []byte("{"), 0o600))
	gc(`[]`)
	if _, err := os.Lstat(broken); !os.IsNotExist(err) {
		t.Errorf("a broken record is left: %v", err)
	}
}

// The record stays until the IPAM plugin has released the addresses.
func TestRecordStaysWhileIPAMFails(t *testing.T) {
	bin := t.TempDir()
	plugin := func(script string) {
		testkit.Must(t, os.WriteFile(filepath.Join(bin, "lease"), []byte("#!/bin/sh\nD="+bin+"\n"+script), 0o755))
	}
	const works = `case $CNI_COMMAND in
ADD) touch $D/leased-$CNI_CONTAINERID; echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.1/24"}]}';;
DEL) rm -f $D/leased-$CNI_CONTAINERID;;
esac`
	leased := func(id string) bool {
		_, err := os.Stat(bin + "/leased-" + id)
		return err == nil
	}
	for _, first := range []string{"DEL", "GC"} {
		n := newNode(t)
		conf := confWith(`, "ipam": {"type": "lease"}, "cni.dev/valid-attachments": []`)
		environ := func(command string) []string { return env(command, "CNI_PATH="+bin, "CNI_CONTAINERID="+first) }
		plugin(works)
		n.mustRun(environ("ADD"), conf)
		plugin(`[ $CNI_COMMAND = GC ] || { echo '{"code": 142, "msg": "busy"}'; exit 1; }`)
		for range 2 {
			if a := n.run(environ(first), conf); a.code != 142 {
				t.Errorf("%s: code %d, %s", first, a.code, a.all)
			}
			if left := n.files(); len(left) != 1 || !strings.Contains(left[0], attach.DefaultStateDir) {
				t.Errorf("%s that failed left %q, want the record alone", first, left)
			}
		}
		plugin(works)
		n.mustRun(environ("GC"), conf)
		if left := n.files(); len(left) > 0 || leased(first) {
			t.Errorf("%s: left %q, leased %v", first, left, leased(first))
		}
	}
}

func TestStatusReportsUnusableDirectories(t *testing.T) {
	n := newNode(t)
	n.mustRun([]string{"CNI_COMMAND=STATUS"}, confWith(""))
	if a := n.run([]string{"CNI_COMMAND=STATUS"}, confWith(`, "x": 1`)); a.code != codeField {
		t.Errorf("code %d, %s", a.code, a.all)
	}
	if a := n.run([]string{"CNI_COMMAND=STATUS"}, confOf("1.0.0", "")); a.code != codeVersion && a.code != codeDecode {
		t.Errorf("1.0.0 has no STATUS: code %d, %s", a.code, a.all)
	}
	n.mustRun(env("ADD"), confWith(""))
	testkit.Must(t, os.RemoveAll(filepath.Join(n.dir, attach.DefaultSocketDir)))
	if a := n.run([]string{"CNI_COMMAND=STATUS"}, confWith("")); a.code != types.ErrLimitedConnectivity {
		t.Errorf("the directory is gone: code %d, %s", a.code, a.all)
	}
	testkit.Must(t, os.RemoveAll(filepath.Join(n.dir, attach.DefaultSocketDir)))
	n.write(attach.DefaultSocketDir, "a file")
	if a := n.run([]string{"CNI_COMMAND=STATUS"}, confWith("")); a.code != types.ErrPluginNotAvailable {
		t.Errorf("no directory can be made: code %d, %s", a.code, a.all)
	}
}

// An IPAM plugin that prints without end is stopped.
func TestIPAMOutputIsBounded(t *testing.T) {
	n := newNode(t)
	n.write("/bin/flood", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nhead -c 5000000 /dev/zero | tr '\\0' ' '\necho '{\"ips\": [{\"address\": \"10.0.0.1/24\"}]}'\n")
	testkit.Must(t, os.Chmod(filepath.Join(n.dir, "bin/flood"), 0o755))
	a := n.run(env("ADD", "CNI_PATH="+filepath.Join(n.dir, "bin"), "PATH=/bin:/usr/bin"), confWith(`, "ipam": {"type": "flood"}`))
	if a.code != codeIO || !strings.Contains(a.msg, "IPAM plugin flood failed") {
		t.Errorf("code %d, %s", a.code, a.all)
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// The output of an IPAM plugin is quoted in ASCII and cut, and the reason that a crashed plugin printed is in the error.
func TestErrorHasOutputOfIPAMPlugin(t *testing.T) {
	for name, tc := range map[string]struct {
		script, want string
		code         uint
	}{
		"log line": {`printf '2026/11/28 INFO \303\244llocating\n{"ips": [{"address": "10.0.0.1/24"}]}'`,
			`its standard output is "2026/11/28 INFO \u00e4llocating\n{`, codeDecode},
		"bad result": {`echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.1"}]}'`, `ips[0].address: invalid value "10.0.0.1"`, codeDecode},
		"crash": {`printf 'panic: index out of range \303\274\n\n' >&2; kill -SEGV $$`,
			`segmentation fault; its last line on standard error is "panic: index out of range \u00fc"`, codeIO},
		"long output": {`head -c 3000 /dev/zero | tr '\0' 'x'`, `xxx"... (3000 bytes)`, codeDecode},
		"own error":   {`printf '{"code": 7, "msg": "a\\u001bb", "details": "c"}'; exit 1`, `IPAM plugin fake: a\x1bb: c`, codeConfig},
	} {
		n := newNode(t)
		n.write("/bin/fake", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\n"+tc.script+"\n")
		testkit.Must(t, os.Chmod(filepath.Join(n.dir, "bin/fake"), 0o755))
		a := n.run(env("ADD", "CNI_PATH="+filepath.Join(n.dir, "bin"), "PATH=/bin:/usr/bin"), confWith(`, "ipam": {"type": "fake"}`))
		if a.code != tc.code || !strings.Contains(a.all, tc.want) {
			t.Errorf("%s: code %d, %s; want code %d with %s", name, a.code, a.all, tc.code, tc.want)
		}
	}
}
