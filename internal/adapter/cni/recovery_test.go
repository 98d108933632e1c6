// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// DEL and GC succeed with an unreadable record. They remove what has the attachment's names, and nothing else.
func TestDelIgnoresContentOfBrokenRecord(t *testing.T) {
	const infoDir = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	name := recordFileName("fast", testID, "net1")
	whole := func(n *node) string {
		data, err := os.ReadFile(filepath.Join(n.dir, attach.DefaultStateDir, name))
		testkit.Must(t, err)
		return string(data)
	}
	for what, spoil := range map[string]func(record string) string{
		"empty":             func(string) string { return "" },
		"zeros":             func(r string) string { return strings.Repeat("\x00", len(r)) },
		"half":              func(r string) string { return r[:len(r)/2] },
		"no record":         func(string) string { return "{}" },
		"a list":            func(string) string { return "[]" },
		"of another":        func(r string) string { return strings.Replace(r, `"net1"`, `"net2"`, 1) },
		"no device-info":    func(r string) string { return r[:strings.Index(r, `"deviceInfo":`)-1] + "}" },
		"info not of":       func(r string) string { return strings.Replace(r, `"deviceInfo":{`, `"deviceInfo":{"type":1,`, 1) },
		"leads out":         func(r string) string { return strings.Replace(r, `"directory":"`, `"directory":"../../etc/`, 1) },
		"file leads out":    func(r string) string { return strings.Replace(r, `"deviceInfoFile":"`, `"deviceInfoFile":"../`, 1) },
		"directory of none": func(r string) string { return strings.Replace(r, `"socketDir":"/`, `"socketDir":"`, 1) },
		"too large":         func(r string) string { return r + strings.Repeat(" ", 256<<10) },
	} {
		for _, op := range []struct{ command, keys string }{{"DEL", ""}, {"GC", `, "cni.dev/valid-attachments": []`}} {
			n := newNode(t)
			args := "CNI_ARGS=K8S_POD_NAMESPACE=apps;IgnoreUnknown=true"
			n.mustRun(env("ADD", args), confWith(""))
			n.write(attach.DefaultSocketDir+"/"+socketDirName("fast", testID, "net1")+"/app.sock", "left by the application")
			// What is another's stays: of another interface and network, and what this
			// plugin did not write.
			n.mustRun(env("ADD", args, "CNI_IFNAME=net2"), confWith(""))
			n.mustRun(env("ADD", args, "CNI_IFNAME=net3"), strings.Replace(confWith(""), `"fast"`, `"other"`, 1))
			n.write(infoDir+"/apps-slow-"+testID+"_net1", `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "/run/x/y"}}`)
			n.write(infoDir+"/apps-bad-"+testID+"_net1", `{`)
			broken := spoil(whole(n))
			if broken == whole(n) {
				t.Fatalf("%s: the record is as it was", what)
			}
			testkit.Must(t, os.WriteFile(filepath.Join(n.dir, attach.DefaultStateDir, name), []byte(broken), 0o600))
			if a := n.run(env("CHECK", args), confWith(`, "prevResult": {"cniVersion": "1.1.0"}`)); a.code != codeIO || !strings.Contains(a.all, name) {
				t.Errorf("%s: CHECK: code %d, %s", what, a.code, a.all)
			}
			if op.command == "GC" {
				op.keys = strings.Replace(op.keys, "[]", `[{"containerID": "`+testID+`", "ifname": "net2"}]`, 1)
			}
			a := n.mustRun(env(op.command), confWith(op.keys))
			if !strings.Contains(a.stderr, name) || !strings.Contains(a.stderr, "fast-"+testID+"_net1") || len(a.stderr) > 2000 {
				t.Errorf("%s: %s tells %q", what, op.command, a.stderr)
			}
			left := strings.Join(n.files(), "\n")
			if gone := []string{name, socketDirName("fast", testID, "net1"), "apps-fast-" + testID + "_net1"}; containsAny(left, gone) {
				t.Errorf("%s: %s left %s", what, op.command, left)
			}
			for _, stays := range []string{socketDirName("fast", testID, "net2"), "apps-fast-" + testID + "_net2", socketDirName("other", testID, "net3"),
				"apps-other-" + testID + "_net3", "apps-slow-", "apps-bad-"} {
				if !strings.Contains(left, stays) {
					t.Errorf("%s: %s removed %s", what, op.command, stays)
				}
			}
			n.mustRun(env("DEL"), confWith(""))
			n.mustRun(env("ADD", args), confWith(""))
		}
	}
}

// The runtime chooses the beginning of the file's name.
func TestDelOfBrokenRecordRemovesNamedFile(t *testing.T) {
	n := newNode(t)
	conf := confWith(`, "capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "/var/run/k8s.cni.cncf.io/devinfo/cni/` + infoName + `"}`)
	n.mustRun(env("ADD"), conf)
	testkit.Must(t, os.Truncate(filepath.Join(n.dir, attach.DefaultStateDir, recordFileName("fast", testID, "net1")), 0))
	n.mustRun(env("DEL"), conf)
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// A FIFO in place of the record does not block DEL.
func TestDelDoesNotWaitForFIFO(t *testing.T) {
	n := newNode(t)
	n.mustRun(env("ADD"), confWith(""))
	file := filepath.Join(n.dir, attach.DefaultStateDir, recordFileName("fast", testID, "net1"))
	testkit.Must(t, os.Remove(file))
	testkit.Must(t, unix.Mkfifo(file, 0o600))
	n.mustRun(env("DEL"), confWith(""))
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// A result with an incomplete part is refused, and the error names its key. Otherwise it would be passed on as the
// address "<nil>".
func TestIncompleteResultIsRefused(t *testing.T) {
	for result, want := range map[string]string{
		`{"cniVersion": "1.0.0", "interfaces": [{"name": "a"}, null]}`:                                        "interfaces[1]: invalid value null: must be an object",
		`{"cniVersion": "0.4.0", "ips": [{"version": "4", "adress": "10.0.0.1/8"}]}`:                          "ips[0].address: missing",
		`{"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.1/8"}, null]}`:                                   "ips[1]: invalid value null: must be an object",
		`{"cniVersion": "1.1.0", "routes": [{"gw": "10.0.0.1"}]}`:                                             "routes[0].dst: missing",
		`{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.2"}]}`:                                           `ips[0].address: invalid value "10.1.0.2": must be an address with its prefix length`,
		`{"cniVersion": "1.0.0", "routes": [{"dst": "10.1.0.0/33"}]}`:                                         `routes[0].dst: invalid value "10.1.0.0/33"`,
		`{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.2/24", "gateway": "10.1"}]}`:                     `ips[0].gateway: invalid value "10.1": must be an IP address`,
		`{"cniVersion": "1.0.0", "routes": [{"dst": "10.1.0.0/16", "gw": "x"}]}`:                              `routes[0].gw: invalid value "x"`,
		`{"cniVersion": "0.2.0", "ip6": {}}`:                                                                  "ip6.ip: missing",
		`{"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.1/8", "routes": [null]}, "ip6": {"ip": "fd00::1/64"}}`: "ip4.routes[0]: invalid value null: must be an object",
	} {
		if r, err := parseResultText([]byte(result), "1.1.0"); r != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %s", result, r, err, want)
		}
		a := newNode(t).run(env("ADD"), confWith(`, "prevResult": `+result))
		if a.code != codeDecode || !strings.Contains(a.all, want) {
			t.Errorf("%s: code %d, %s; want %s", result, a.code, a.all, want)
		}
	}
}

func containsAny(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

// DEL succeeds after an ADD that was refused, whatever the reason.
func TestDelOfRefusedAddSucceeds(t *testing.T) {
	for _, keys := range []string{`, "ipam": "host-local"`, `, "ipam": ["x"]`, `, "ipam": {"typ": "host-local"}`, `, "ipam": {"type": 7}`,
		`, "ipam": {"type": "missing"}`, `, "ipam": {"type": "../x"}`, `, "stateDir": "cni"`, `, "stateDir": 7`, `, "stateDir": "/etc"`, `, "claimsDir": "x"`,
		`, "deviceInfoDir": []`, `, "vswitch": 7`, `, "vswitch": "ovs9"`, `, "configFile": "x", "vswitch": "ovs0"`, `, "timeout": 1`, `, "runtimeConfig": 1`} {
		n := newNode(t)
		if a := n.run(env("ADD"), confWith(keys)); a.code == 0 {
			t.Errorf("%s: ADD succeeds", keys)
		}
		for range 2 {
			if a := n.run(env("DEL"), confWith(keys)); a.code != 0 {
				t.Errorf("%s: DEL: code %d, %s", keys, a.code, a.all)
			}
		}
		if left := n.files(); len(left) > 0 {
			t.Errorf("%s: left %q", keys, left)
		}
	}
}

// The plugin that allocated the addresses releases them, also after the configuration named another one or none.
func TestRecordedIPAMPluginReleasesAddresses(t *testing.T) {
	for _, keys := range []string{`, "ipam": {"type": "gone"}`, `, "ipam": "x"`, ""} {
		n := newNode(t)
		lease := filepath.Join(n.dir, "lease")
		n.write("/bin/lease", `#!/bin/sh
grep -q '"range": *"a"' || exit 1
case $CNI_COMMAND in
ADD) touch `+lease+`; echo '{"ips": [{"address": "10.9.0.1/24"}]}';;
DEL) [ "$CNI_CONTAINERID$CNI_IFNAME$CNI_ARGS" = "`+testID+`net1IgnoreUnknown=1;X=1" ] && rm `+lease+`;;
esac
`)
		testkit.Must(t, os.Chmod(filepath.Join(n.dir, "bin/lease"), 0o755))
		path := "CNI_PATH=" + filepath.Join(n.dir, "bin")
		n.mustRun(env("ADD", path, "PATH=/bin:/usr/bin", "CNI_ARGS=IgnoreUnknown=1;X=1"),
			confWith(`, "ipam": {"type": "lease", "range": "a"}`))
		n.mustRun(env("DEL", "CNI_PATH=/x", "PATH=/bin:/usr/bin"), confWith(keys))
		if _, err := os.Stat(lease); err == nil {
			t.Errorf("%s: the address is leased", keys)
		}
	}
}

// An unreadable device-info file with the attachment's own name is overwritten by ADD, and removed by DEL. A file that the
// runtime names is overwritten only if it is empty, and a copy of a device plugin's file never.
func TestUnreadableDeviceInfoOfAttachment(t *testing.T) {
	const infoDir = "/var/run/k8s.cni.cncf.io/devinfo/cni/"
	args, own := "CNI_ARGS=K8S_POD_NAMESPACE=apps", infoDir+"apps-fast-"+testID+"_net1"
	named := `, "runtimeConfig": {"CNIDeviceInfoFile": "` + own + `"}`
	for _, tc := range []struct{ name, content, keys, refused string }{
		{"empty", "", "", ""},
		{"cut", `{"type": "vhost`, "", ""},
		{"empty, named by the runtime", "", named, ""},
		{"cut, named by the runtime", `{"type": "vhost`, named, "the network has no device of a device plugin: remove the file"},
		{"empty copy", "", `, "deviceID": "port7"`, "should be the copy of the device plugin's file"},
	} {
		n := newNode(t)
		n.write(own, tc.content)
		a := n.run(env("ADD", args), confWith(tc.keys))
		if tc.refused == "" && a.code != 0 || tc.refused != "" && (a.code != codeConfig || !strings.Contains(a.all, tc.refused)) {
			t.Errorf("%s: code %d, %s", tc.name, a.code, a.all)
		}
		n.mustRun(env("DEL", args), confWith(tc.keys))
		if left := n.files(); len(left) > 0 {
			t.Errorf("%s: DEL left %q", tc.name, left)
		}
	}
}

// DEL removes no unreadable device-info file of another attachment, although the network names it.
func TestDelKeepsUnreadableDeviceInfoOfAnotherAttachment(t *testing.T) {
	const infoDir = "/var/run/k8s.cni.cncf.io/devinfo/cni/"
	other := "victim-fast-" + strings.Repeat("a", 64) + "_net1"
	for _, name := range []string{other, "apps-fast-" + testID + "_net2", "unrelated"} {
		n := newNode(t)
		n.write(infoDir+name, "")
		n.mustRun(env("DEL"), confWith(`, "runtimeConfig": {"CNIDeviceInfoFile": "`+infoDir+name+`"}`))
		if left := n.files(); len(left) != 1 {
			t.Errorf("%s: DEL left %q", name, left)
		}
	}
}
