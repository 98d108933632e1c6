// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/network"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const k8sArgs = "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=blue;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID=" + testID

func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	testkit.Must(t, json.Unmarshal([]byte(want), &w))
	if d := cmp.Diff(w, g); d != "" {
		t.Errorf("want -, got +:\n%s", d)
	}
}

func TestAddAsFirstPlugin(t *testing.T) {
	n := newNode(t)
	dir := attach.DefaultSocketDir + "/" + socketDirName("fast", testID, "net1")
	for _, version := range network.Versions {
		a := n.mustRun(env("ADD", k8sArgs), confOf(version, `"device": {"type": "vhost-user", "mode": "server"},
			"dns": {"nameservers": ["10.1.0.1"]}, "runtimeConfig": {"mac": "C2:11:22:33:44:55", "ips": ["10.10.0.1/24", "3ffe:ffff:0:01ff::1/64"]}`))
		socket, v4, v6 := "", "", ""
		switch version {
		case "1.1.0":
			socket = `, "socketPath": "` + dir + `/vhost-user.sock"`
		case "0.3.0", "0.3.1", "0.4.0":
			v4, v6 = `"version": "4", `, `"version": "6", `
		}
		sameJSON(t, a.out, `{"cniVersion": "`+version+`",
			"interfaces": [{"name": "net1", "mac": "c2:11:22:33:44:55", "sandbox": "`+ownNS+`"`+socket+`}],
			"ips": [{`+v4+`"address": "10.10.0.1/24", "interface": 0}, {`+v6+`"address": "3ffe:ffff:0:1ff::1/64", "interface": 0}],
			"dns": {"nameservers": ["10.1.0.1"]}}`)
		name, content := n.readInfoFile()
		if want := "blue-fast-" + testID + "_net1"; name != want {
			t.Errorf("the file is %q, want %q", name, want)
		}
		sameJSON(t, content, `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "server", "path": "`+dir+`/vhost-user.sock"},
			"jackfield.dev/interface": {"network": "fast", "mac": "c2:11:22:33:44:55", "ips": ["10.10.0.1/24", "3ffe:ffff:0:1ff::1/64"], "dns": {"nameservers": ["10.1.0.1"]}}}`)
		if st, err := os.Stat(filepath.Join(n.dir, dir)); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("the socket directory is %v, %v", st, err)
		}
		if !isOlder(version, "0.4.0") {
			n.mustRun(env("CHECK", k8sArgs), confOf(version, `"device": {"type": "vhost-user", "mode": "server"}, "prevResult": `+a.out))
		}
		// What the application left goes too.
		testkit.Must(t, os.WriteFile(filepath.Join(n.dir, dir, "vhost-user.sock"), nil, 0o600))
		testkit.Must(t, os.MkdirAll(filepath.Join(n.dir, dir, "a/b"), 0o700))
		testkit.Must(t, os.Symlink("/etc", filepath.Join(n.dir, dir, "a/etc")))
		n.mustRun(env("DEL"), confOf(version, `"device": {"type": "vhost-user", "mode": "server"}`))
		n.mustRun(env("DEL"), confOf(version, `"device": {"type": "vhost-user", "mode": "server"}`))
		if left := n.files(); len(left) > 0 {
			t.Fatalf("DEL left %q", left)
		}
	}
}

func TestAddAfterOtherPlugins(t *testing.T) {
	prev := `{"cniVersion": "1.1.0", "interfaces": [{"name": "br0"}, {"name": "net1", "mac": "99:88:77:66:55:44", "sandbox": "/var/run/netns/blue"}],
		"ips": [{"address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 1}], "routes": [{"dst": "0.0.0.0/0"}], "dns": {"nameservers": ["10.1.0.1"]}}`
	n := newNode(t)
	conf := confWith(`, "prevResult": ` + prev + `, "runtimeConfig": {"ips": ["10.1.0.5"]}`)
	a := n.mustRun(env("ADD"), conf)
	sameJSON(t, a.out, prev)
	_, content := n.readInfoFile()
	var info deviceinfo.Info
	testkit.Must(t, json.Unmarshal([]byte(content), &info))
	sameJSON(t, string(info.Extra[attachment.InterfaceInfoKey]), `{"network": "fast", "ips": ["10.1.0.5/16"], "gateway": ["10.1.0.1"]}`)
	n.mustRun(env("CHECK"), conf)
	n.mustRun(env("DEL"), confWith(""))
	if left := n.files(); len(left) > 0 {
		t.Fatalf("DEL left %q", left)
	}

	// A result without its version, as in the specification's examples.
	conf = confWith(`, "prevResult": {"ips": [{"address": "10.1.0.5/16"}]}`)
	sameJSON(t, n.mustRun(env("ADD"), conf).out, `{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/16"}]}`)
	n.mustRun(env("DEL"), conf)

	for keys, want := range map[string]struct {
		code uint
		text string
	}{
		`, "ipam": {"type": "host-local"}`:                   {codeField, `"ipam": {"type":"host-local"}`},
		`, "runtimeConfig": {"ips": ["10.1.0.6"]}`:           {codeField, `"runtimeConfig.ips": ["10.1.0.6"]`},
		`, "prevResult": {"ips": 1}`:                         {codeDecode, "prevResult"},
		`, "prevResult": {"cniVersion": "9.0.0", "ips": []}`: {codeDecode, "9.0.0"},
	} {
		if !strings.Contains(keys, "prevResult") {
			keys += `, "prevResult": ` + prev
		}
		a := n.run(env("ADD"), confWith(keys))
		if a.code != want.code || !strings.Contains(a.all, want.text) {
			t.Errorf("%s: code %d, %s; want code %d with %q", keys, a.code, a.all, want.code, want.text)
		}
	}
	if left := n.files(); len(left) > 0 {
		t.Fatalf("refusals left %q", left)
	}
}

func TestAddPlansSocketOfEachSide(t *testing.T) {
	for name, c := range map[string]struct{ device, want string }{
		"client":   {`{"type": "vhost-user", "mode": "client", "path": "port.sock"}`, `"vhost-user": {"mode": "client", "path": "DIR/port.sock"}`},
		"master":   {`{"type": "memif", "role": "master"}`, `"memif": {"role": "master", "path": "DIR/memif.sock", "mode": "ethernet"}`},
		"slave":    {`{"type": "memif", "role": "slave", "mode": "ip"}`, `"memif": {"role": "slave", "path": "DIR/memif.sock", "mode": "ip"}`},
		"abstract": {`{"type": "memif", "role": "master", "path": "@vpp"}`, `"memif": {"role": "master", "path": "@vpp", "mode": "ethernet"}`},
		"port":     {`{"type": "vhost-user", "mode": "client", "path": "/var/run/jackfield/sockets/vsw/port0"}`, `"vhost-user": {"mode": "client", "path": "/var/run/jackfield/sockets/vsw/port0"}`},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			a := n.mustRun(env("ADD"), confOf("1.1.0", `"device": `+c.device))
			_, content := n.readInfoFile()
			kind := "vhost-user"
			if strings.Contains(c.want, "memif") {
				kind = "memif"
			}
			dir := attach.DefaultSocketDir + "/" + socketDirName("fast", testID, "net1")
			sameJSON(t, content, `{"type": "`+kind+`", "version": "1.1.0", `+strings.ReplaceAll(c.want, "DIR", dir)+`, "jackfield.dev/interface": {"network": "fast"}}`)
			_, err := os.Stat(filepath.Join(n.dir, dir))
			if made := err == nil; made != strings.Contains(c.want, "DIR") {
				t.Errorf("socket directory: %v", err)
			}
			if strings.Contains(a.out, "@") {
				t.Errorf("an abstract socket is no path: %s", a.out)
			}
			n.mustRun(env("CHECK"), confOf("1.1.0", `"device": `+c.device+`, "prevResult": `+a.out))
			n.mustRun(env("DEL"), confOf("1.1.0", `"device": `+c.device))
			if left := n.files(); len(left) > 0 {
				t.Fatalf("DEL left %q", left)
			}
		})
	}
}

func TestSocketPathMustFitSocketAddress(t *testing.T) {
	n := newNode(t)
	n.list("socketDirs: [/run/x*, /s]")
	long := "/var/run/" + strings.Repeat("x", 60)
	a := n.run(env("ADD"), confWith(`, "socketDir": "`+long+`"`))
	if a.code != codeConfig || !strings.Contains(a.all, "at most 107") || !strings.Contains(a.all, "on the host") {
		t.Errorf("code %d, %s", a.code, a.all)
	}
	file := strings.Repeat("f", 80)
	a = n.run(env("ADD"), confOf("1.1.0", `"socketDir": "/s", "device": {"type": "vhost-user", "mode": "client", "path": "`+file+`"}`))
	if a.code != codeConfig || !strings.Contains(a.all, "at most 107") {
		t.Errorf("code %d, %s", a.code, a.all)
	}
	a = n.run(env("ADD"), confOf("1.1.0", `"socketDir": "/s", "device": {"type": "vhost-user", "mode": "client", "path": "/s/d/`+file+`"}`))
	if a.code != codeConfig || !strings.Contains(a.all, "in the container") {
		t.Errorf("code %d, %s", a.code, a.all)
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestDeviceInfoFileIsTheOneTheRuntimeNames(t *testing.T) {
	n := newNode(t)
	const dir = "/var/run/k8s.cni.cncf.io/devinfo/cni/"
	conf := func(file string) string { return confWith(`, "runtimeConfig": {"CNIDeviceInfoFile": "` + file + `"}`) }
	n.mustRun(env("ADD", k8sArgs), conf(dir+infoName))
	if name, _ := n.readInfoFile(); name != infoName {
		t.Errorf("the file is %q", name)
	}
	n.mustRun(env("DEL"), conf(dir+infoName))
	for _, file := range []string{"/etc/shadow", "/etc/" + infoName, dir + "any-name", dir + "default-fast-" + strings.Repeat("b", 64) + "_net1", dir + "any-net-" + testID + "_net2", dir + "../x", dir + "sub/x", dir + ".x", "relative", dir} {
		a := n.run(env("ADD"), conf(file))
		if a.code != codeConfig || !strings.Contains(a.msg, "CNIDeviceInfoFile") {
			t.Errorf("%q: code %d, %s", file, a.code, a.all)
		}
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}

	// The copy of a device plugin's file is updated, and is not this plugin's to
	// remove.
	n.write(dir+infoName, `{"type": "vhost-user", "version": "1.0.0", "vhost-user": {"mode": "server", "path": "/dp/sock"}, "vendor": 1}`)
	n.mustRun(env("ADD"), conf(dir+infoName))
	if _, content := n.readInfoFile(); !strings.Contains(content, `"vendor": 1`) || !strings.Contains(content, "/dp/sock") || !strings.Contains(content, attachment.InterfaceInfoKey) {
		t.Errorf("the updated file is %s", content)
	}
	n.mustRun(env("DEL"), conf(dir+infoName))
	if left := n.files(); len(left) != 1 {
		t.Errorf("left %q, want the copy", left)
	}
	n.write(dir+infoName, `{"type": "pci", "version": "1.0.0", "pci": {"pci-address": "0000:03:00.3"}}`)
	if a := n.run(env("ADD"), conf(dir+infoName)); a.code != codeConfig || !strings.Contains(a.all, "device.type") {
		t.Errorf("another type in the file: code %d, %s", a.code, a.all)
	}
	n.write(dir+infoName, `{"type": "pci"`)
	if a := n.run(env("ADD"), conf(dir+infoName)); a.code != codeConfig {
		t.Errorf("a broken file: code %d, %s", a.code, a.all)
	}
}

// The socket in the copy of a device plugin's file is the allocated port's: what the
// configuration does not say is taken from it, and what it says otherwise is an error.
func TestAddKeepsSocketOfDevicePlugin(t *testing.T) {
	const (
		copied = "/var/run/k8s.cni.cncf.io/devinfo/cni/" + infoName
		vhost  = `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "/var/run/vsw/port2/vhu.sock"}}`
		memif  = `{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "path": "/var/run/vsw/port2/memif.sock", "mode": "ip"}}`
	)
	own := attach.DefaultSocketDir + "/" + socketDirName("fast", testID, "net1") + "/vhost-user.sock"
	for name, tc := range map[string]struct {
		file, device string
		want         string // the device's map in the file; "" for an error with
		words        []string
	}{
		"nothing but the type": {file: vhost, device: `{"type": "vhost-user"}`, want: `{"mode": "client", "path": "/var/run/vsw/port2/vhu.sock"}`},
		"the same mode":        {file: vhost, device: `{"type": "vhost-user", "mode": "client"}`, want: `{"mode": "client", "path": "/var/run/vsw/port2/vhu.sock"}`},
		"the same path": {file: vhost, device: `{"type": "vhost-user", "mode": "client", "path": "/var/run/vsw/port2/vhu.sock"}`,
			want: `{"mode": "client", "path": "/var/run/vsw/port2/vhu.sock"}`},
		"the same path in another spelling": {file: vhost, device: `{"type": "vhost-user", "path": "/run/vsw/port2/vhu.sock"}`,
			want: `{"mode": "client", "path": "/var/run/vsw/port2/vhu.sock"}`},
		"another port's path": {file: vhost, device: `{"type": "vhost-user", "mode": "client", "path": "/var/run/vsw/port0/vhu.sock"}`,
			words: []string{"device.path", "/var/run/vsw/port0/vhu.sock", "/var/run/vsw/port2/vhu.sock", "vhost-user.path", copied, "remove device.path"}},
		"a file name": {file: vhost, device: `{"type": "vhost-user", "mode": "client", "path": "vhu.sock"}`,
			words: []string{"device.path", `"vhu.sock"`, "/var/run/vsw/port2/vhu.sock", copied}},
		"another mode": {file: vhost, device: `{"type": "vhost-user", "mode": "server"}`,
			words: []string{"device.mode", `"server"`, `"client"`, "vhost-user.mode", copied, "remove device.mode"}},
		"memif":              {file: memif, device: `{"type": "memif"}`, want: `{"role": "slave", "path": "/var/run/vsw/port2/memif.sock", "mode": "ip"}`},
		"memif, other role":  {file: memif, device: `{"type": "memif", "role": "master"}`, words: []string{"device.role", `"master"`, `"slave"`, "memif.role"}},
		"memif, other mode":  {file: memif, device: `{"type": "memif", "mode": "ethernet"}`, words: []string{"device.mode", `"ethernet"`, `"ip"`, "memif.mode"}},
		"another type":       {file: memif, device: `{"type": "vhost-user"}`, words: []string{"device.type", `"vhost-user"`, `"memif"`, copied}},
		"abstract":           {file: strings.Replace(memif, "/var/run/vsw/port2/memif.sock", "@port2", 1), device: `{"type": "memif"}`, want: `{"role": "slave", "path": "@port2", "mode": "ip"}`},
		"abstract, another":  {file: strings.Replace(memif, "/var/run/vsw/port2/memif.sock", "@port2", 1), device: `{"type": "memif", "path": "@port0"}`, words: []string{"device.path", `"@port0"`, `"@port2"`}},
		"too long":           {file: strings.Replace(vhost, "port2", strings.Repeat("p", 100), 1), device: `{"type": "vhost-user"}`, words: []string{"at most 107 bytes"}},
		"an ADD of this one": {file: strings.Replace(vhost, "/var/run/vsw/port2/vhu.sock", own, 1), device: `{"type": "vhost-user", "mode": "client"}`, want: `{"mode": "client", "path": "` + own + `"}`},
		"no file, no mode":   {device: `{"type": "vhost-user"}`, words: []string{"device.mode", "server or client"}},
		"no file, no role":   {device: `{"type": "memif"}`, words: []string{"device.role", "master or slave"}},
		"no file, an application's absolute path": {device: `{"type": "vhost-user", "mode": "server", "path": "` + attach.DefaultSocketDir + `/a/b"}`,
			words: []string{"device.path", "a file name"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			testkit.Must(t, os.MkdirAll(filepath.Join(n.dir, "run"), 0o755))
			testkit.Must(t, os.MkdirAll(filepath.Join(n.dir, "var"), 0o755))
			testkit.Must(t, os.Symlink("../run", filepath.Join(n.dir, "var/run")))
			if tc.file != "" {
				n.write(copied, tc.file)
			}
			conf := confOf("1.1.0", `"device": `+tc.device+`, "runtimeConfig": {"CNIDeviceInfoFile": "`+copied+`"}`)
			a := n.run(env("ADD"), conf)
			if tc.want == "" {
				if a.code != codeConfig {
					t.Errorf("code %d, %s; want %d", a.code, a.out, codeConfig)
				}
				for _, w := range tc.words {
					if !strings.Contains(a.all, w) {
						t.Errorf("the error does not name %q: %s", w, a.all)
					}
				}
				return
			}
			if a.code != 0 {
				t.Fatalf("code %d, %s", a.code, a.all)
			}
			_, content := n.readInfoFile()
			var info map[string]json.RawMessage
			testkit.Must(t, json.Unmarshal([]byte(content), &info))
			var kind, socket string
			testkit.Must(t, json.Unmarshal(info["type"], &kind))
			sameJSON(t, string(info[kind]), tc.want)
			var m map[string]string
			testkit.Must(t, json.Unmarshal(info[kind], &m))
			if socket = m["path"]; !strings.HasPrefix(socket, "@") && !strings.Contains(a.out, `"socketPath": "`+socket+`"`) {
				t.Errorf("the result has another socket: %s", a.out)
			}
			n.mustRun(env("CHECK"), conf[:len(conf)-1]+`, "prevResult": `+a.out+"}")
			n.mustRun(env("DEL"), conf)
			if left := n.files(); len(left) != 1 || left[0] != strings.Replace(copied, "/var/run", "/run", 1) && left[0] != copied {
				t.Errorf("DEL left %q, want the copy alone", left)
			}
		})
	}
}

// ADD fails with "try again" if another process creates or removes the device-info file meanwhile, and leaves the file
// as it is.
func TestAddKeepsFileWrittenMeanwhile(t *testing.T) {
	const dir, theirs = "/var/run/k8s.cni.cncf.io/devinfo/cni/", `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "server", "path": "/dp/sock"}}`
	conf := confWith(`, "runtimeConfig": {"CNIDeviceInfoFile": "` + dir + infoName + `"}`)
	for name, c := range map[string]struct {
		before, after string // "" for none
		keys          string
		code          uint
	}{
		"came":                 {"", theirs, "", types.ErrTryAgainLater},
		"went":                 {theirs, "", "", types.ErrTryAgainLater},
		"came, and no address": {"", theirs, `, "ipam": {"type": "none"}`, codeConfig},
	} {
		n := newNode(t)
		if c.before != "" {
			n.write(dir+infoName, c.before)
		}
		n.reached = func(step string) {
			switch {
			case step != "directory created":
			case c.after != "":
				n.write(dir+infoName, c.after)
			default:
				testkit.Must(t, os.Remove(filepath.Join(n.dir, dir+infoName)))
			}
		}
		if a := n.run(env("ADD"), conf[:len(conf)-1]+c.keys+"}"); a.code != c.code {
			t.Errorf("%s: code %d, %s", name, a.code, a.all)
		}
		left := n.files()
		if c.after == "" && len(left) > 0 || c.after != "" && len(left) != 1 {
			t.Errorf("%s: left %q", name, left)
		}
		if c.after != "" {
			if _, content := n.readInfoFile(); content != theirs {
				t.Errorf("%s: it is %s", name, content)
			}
		}
	}
}

func TestAddRefusesExistingAttachment(t *testing.T) {
	n := newNode(t)
	n.mustRun(env("ADD"), confWith(""))
	before := n.files()
	for name, environ := range map[string][]string{"again": env("ADD"), "other network": env("ADD")} {
		conf := confWith("")
		if name == "other network" {
			conf = strings.Replace(conf, `"fast"`, `"other"`, 1)
		}
		if a := n.run(environ, conf); a.code != codeExists {
			t.Errorf("%s: code %d, %s", name, a.code, a.all)
		}
	}
	if d := cmp.Diff(before, n.files()); d != "" {
		t.Errorf("a refused ADD changed something: %s", d)
	}
	// lo is in every network namespace.
	if a := n.run(env("ADD", "CNI_IFNAME=lo"), confWith("")); a.code != codeExists || !strings.Contains(a.msg, "lo") {
		t.Errorf("an interface of the kernel: code %d, %s", a.code, a.all)
	}
	// A directory without a record belongs to another owner.
	stranger := attach.DefaultSocketDir + "/" + socketDirName("fast", testID, "net2") + "/f"
	n.write(stranger, "")
	if a := n.run(env("ADD", "CNI_IFNAME=net2"), confWith("")); a.code != codeExists {
		t.Errorf("somebody's directory: code %d, %s", a.code, a.all)
	}
	n.mustRun(env("DEL", "CNI_IFNAME=net2"), confWith(""))
	if _, err := os.Stat(filepath.Join(n.dir, stranger)); err != nil {
		t.Errorf("DEL removed what is not its own: %v", err)
	}
}

// A vswitch that does not run as root creates its sockets in directories of its group.
func TestSocketDirHasOwnerOfItsParent(t *testing.T) {
	n := newNode(t)
	root := filepath.Join(n.dir, attach.DefaultSocketDir)
	testkit.Must(t, os.MkdirAll(root, 0o755))
	testkit.Must(t, os.Chmod(root, 0o775))
	if os.Geteuid() == 0 {
		testkit.Must(t, os.Chown(root, 4321, 4322))
	}
	n.mustRun(env("ADD"), confWith(""))
	var st, want unix.Stat_t
	testkit.Must(t, unix.Stat(root, &want))
	testkit.Must(t, unix.Stat(filepath.Join(root, socketDirName("fast", testID, "net1")), &st))
	if st.Uid != want.Uid || st.Gid != want.Gid || st.Mode&0o7777 != 0o775 {
		t.Errorf("uid %d, gid %d, mode %o; want %d, %d, 775", st.Uid, st.Gid, st.Mode&0o7777, want.Uid, want.Gid)
	}
	n.mustRun(env("DEL"), confWith(""))
	testkit.Must(t, os.Chmod(root, 0o777))
	if a := n.run(env("ADD"), confWith("")); a.code != codeConfig || !strings.Contains(a.msg, "socketDir") {
		t.Errorf("everybody's directory: code %d, %s", a.code, a.all)
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// The author of a pod may request a bounded number of addresses, because each is compared with each. DEL has no bound.
func TestAddBoundsNumberOfAddresses(t *testing.T) {
	addresses := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("10.0.%d.%d/16", i/256, i%256))
		}
		return list
	}
	quoted := func(n int) string { return `["` + strings.Join(addresses(n), `","`) + `"]` }
	commas := func(n int) string { return "CNI_ARGS=IP=" + strings.Join(addresses(n), ",") }
	n := newNode(t)
	for name, tc := range map[string]struct {
		args, keys string
		code       uint
		text       string
	}{
		"runtimeConfig": {"CNI_ARGS=", `, "runtimeConfig": {"ips": ` + quoted(maxIPs+1) + `}`, codeConfig, "runtimeConfig.ips: too many IP addresses (65): at most 64"},
		"args":          {"CNI_ARGS=", `, "args": {"cni": {"ips": ` + quoted(maxIPs+1) + `}}`, codeConfig, "args.cni.ips: too many IP addresses (65): at most 64"},
		"a quarter MiB": {"CNI_ARGS=", `, "args": {"cni": {"ips": ` + quoted(16000) + `}}`, codeConfig, "args.cni.ips: too many IP addresses (16000)"},
		"CNI_ARGS":      {commas(maxIPs + 1), "", codeEnvironment, "CNI_ARGS: too many IP addresses (65): at most 64"},
		"chained": {"CNI_ARGS=", `, "prevResult": {"ips": [{"address": "10.0.0.0/16"}]}, "runtimeConfig": {"ips": ` + quoted(maxIPs+1) + `}`,
			codeConfig, "runtimeConfig.ips: too many IP addresses (65)"},
	} {
		if a := n.run(env("ADD", tc.args), confWith(tc.keys)); a.code != tc.code || !strings.Contains(a.all, tc.text) {
			t.Errorf("%s: code %d, %s; want code %d with %q", name, a.code, a.all, tc.code, tc.text)
		}
		if left := n.files(); len(left) > 0 {
			t.Fatalf("%s: the refusal left %q", name, left)
		}
		n.mustRun(env("DEL", tc.args), confWith(tc.keys))
	}
	for name, tc := range map[string][2]string{
		"runtimeConfig": {"CNI_ARGS=", `, "runtimeConfig": {"ips": ` + quoted(maxIPs) + `}`},
		"args":          {"CNI_ARGS=", `, "args": {"cni": {"ips": ` + quoted(maxIPs) + `}}`},
		"CNI_ARGS":      {commas(maxIPs), ""},
	} {
		if a := n.mustRun(env("ADD", tc[0]), confWith(tc[1])); strings.Count(a.out, `"address"`) != maxIPs {
			t.Errorf("%s: the result has not all of %d addresses: %s", name, maxIPs, a.out)
		}
		n.mustRun(env("DEL", tc[0]), confWith(tc[1]))
	}
}
