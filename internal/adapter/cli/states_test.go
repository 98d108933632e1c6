// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nodeState is a state of a node, and what each command says about it.
type nodeState struct {
	name   string
	files  map[string]string // beside those of a healthy node; "" removes the file, "DIR" is a directory
	daemon string            // the daemon's answer; "" for none
	noNRI  bool              // no runtime listens
	says   map[string]answer // by command; a command that is missing has the answer of a healthy node
}

// answer is an exit status, and texts of the output.
type answer struct {
	status int
	texts  []string
}

const (
	sandbox     = "5f0061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a2"
	goodConfig  = "sockets: {roots: [/run/vsw]}\npolicy: {rules: [{name: r, for: {namespaces: [n]}, allow: {cdi: [\"v.com/c=*\"], sockets: [/run/vsw/**], networks: [n/east]}}]}\n"
	goodSpec    = `{"cdiVersion": "0.6.0", "kind": "v.com/c", "devices": [{"name": "d", "containerEdits": {"env": ["A=1"]}}]}`
	mountSpec   = `{"cdiVersion": "0.6.0", "kind": "v.com/c", "devices": [{"name": "d", "containerEdits": {"mounts": [{"hostPath": "/gone", "containerPath": "/x", "options": ["bind"]}]}}]}`
	hookSpec    = `{"cdiVersion": "0.6.0", "kind": "v.com/c", "devices": [{"name": "d", "containerEdits": {"hooks": [{"hookName": "createRuntime", "path": "/gone"}]}}]}`
	registered  = `"version": "v1", "pid": 42, "registered": true, "sockets": [], "sandboxes": [{"id": "` + sandbox + `"}], "runtime": {"name": "containerd", "version": "v2.4.2", "nri": "v0.12.5"}`
	inForce     = `"config": {"file": "/etc/jackfield/config.yaml", "generation": 1, "text": "sockets: {roots: [/run/vsw]}\npolicy: {rules: [{name: r, for: {namespaces: [n]}, allow: {cdi: [\"v.com/c=*\"], sockets: [/run/vsw/**], networks: [n/east]}}]}\n"`
	healthy     = "{" + registered + ", " + inForce + "}}"
	podManifest = "kind: Pod\nmetadata: {name: p, namespace: n, annotations: {devices.jackfield.dev: v.com/c=d}}\nspec: {containers: [{name: c}]}\n"
)

// healthyNode has what every command says about a node without a fault.
var healthyNode = map[string]answer{
	"doctor":   {ExitOK, []string{"ok       configuration", "ok       plugin", "ok       cdi", "0 errors"}},
	"explain":  {ExitOK, []string{`CDI device "v.com/c=d": injected`}},
	"validate": {ExitOK, []string{"config.yaml: ok"}},
	"status":   {ExitOK, []string{"registered with containerd"}},
	"devices":  {ExitOK, []string{"v.com/c=d"}},
	"sockets":  {ExitOK, []string{"no sockets of running containers"}},
}

// down is what the commands say that ask the daemon, where there is none.
var down = answer{ExitError, []string{"ask jackfield-nri at /run/jackfield/status.sock", "run `jackfield doctor`"}}

var nodeStates = []nodeState{
	{name: "healthy", daemon: healthy},
	{name: "no runtime and no daemon", noNRI: true, says: map[string]answer{
		"doctor": {ExitNo, []string{"ERROR    nri            there is no NRI socket", "ERROR    plugin         ask jackfield-nri"}},
		"status": down, "sockets": down,
	}},
	{name: "the daemon is down", says: map[string]answer{
		"doctor": {ExitNo, []string{"ERROR    plugin         ask jackfield-nri"}}, "status": down, "sockets": down,
	}},
	{name: "not registered", daemon: `{"pid": 42, "registered": false, "sockets": [], ` + inForce + "}}", says: map[string]answer{
		"doctor": {ExitNo, []string{"ERROR    plugin         jackfield-nri (process 42) runs and is not registered"}},
		"status": {ExitNo, []string{"NOT REGISTERED"}},
	}},
	{name: "Podman alone", noNRI: true, files: map[string]string{
		"/usr/bin/podman": "#!", "/usr/bin/jackfield-hook": "#!", "/etc/containers/oci/hooks.d/50-jackfield.json": `{"version": "1.0.0", "hook": {"path": "/usr/bin/jackfield-hook"}, "when": {"always": true}, "stages": ["precreate"]}`,
	}, says: map[string]answer{
		"doctor": {ExitOK, []string{"ok       podman         Podman runs /usr/bin/jackfield-hook", "note     plugin", "0 errors"}},
		"status": down, "sockets": down,
	}},
	{name: "Podman without the hook", noNRI: true, files: map[string]string{"/usr/bin/podman": "#!"}, says: map[string]answer{
		"doctor": {ExitNo, []string{"ERROR    podman         Podman does not run jackfield-hook"}}, "status": down, "sockets": down,
	}},
	{name: "docker", daemon: strings.Replace(healthy, "containerd", "docker", 1), says: map[string]answer{
		"doctor": {ExitNo, []string{"ERROR    plugin         jackfield-nri v1 is registered with docker v2.4.2: its NRI applies variables and mounts only"}},
		"status": {ExitNo, []string{"registered with docker v2.4.2 (NRI v0.12.5): its NRI applies variables and mounts only"}},
	}},
	{name: "removed device", daemon: strings.TrimSuffix(healthy, "}") + `, "removedDevices": [{"namespace": "telco", "pod": "fwd", "container": "app",
		"containerID": "c1", "path": "/dev/vfio/13", "number": "245:0", "granted": "PCI function 0000:03:00.1"}]}`, says: map[string]answer{
		"doctor": {ExitOK, []string{"warning  devices        container telco/fwd/app cannot open /dev/vfio/13 (245:0): PCI function 0000:03:00.1 was removed, or unbound from its driver", "delete the pod"}},
		"status": {ExitOK, []string{"removed", "telco/fwd/app cannot open /dev/vfio/13 (245:0): PCI function 0000:03:00.1 was removed, or unbound from its driver; delete the pod"}},
	}},
	{name: "down switch", daemon: strings.Replace(strings.TrimSuffix(healthy, "}"), `"text": "`, `"text": "vswitches: [{name: s, type: ovs}]\n`, 1) +
		`, "vswitches": [{"name": "s", "type": "ovs", "endpoint": "/run/db.sock", "checked": true, "answering": false, "error": "connect: refused"}]}`,
		files: map[string]string{"/etc/jackfield/config.yaml": "vswitches: [{name: s, type: ovs}]\n" + goodConfig}, says: map[string]answer{
			"doctor": {ExitNo, []string{`ERROR    vswitches      vswitch "s" (ovs at /run/db.sock) is unreachable: connect: refused`}},
			"status": {ExitOK, []string{"vswitch s", "UNREACHABLE at /run/db.sock", "connect: refused"}},
		}},
	{name: "broken configuration", daemon: "{" + registered + ", " + inForce + `, "error": "/etc/jackfield/config.yaml:1:1: unknown key"}}`,
		files: map[string]string{"/etc/jackfield/config.yaml": "polciy: {}\n"}, says: map[string]answer{
			"doctor":   {ExitNo, []string{`ERROR    configuration  /etc/jackfield/config.yaml:1:1: unknown key "polciy"`, "ERROR    configuration  jackfield-nri rejects a newer configuration"}},
			"explain":  {ExitOK, []string{`warning: /etc/jackfield/config.yaml:1:1: unknown key "polciy"`, "the configuration in force", "injected"}},
			"validate": {ExitNo, []string{`config.yaml:1:1: unknown key "polciy"`}},
			"status":   {ExitNo, []string{"a newer configuration is rejected"}},
			"devices":  {ExitOK, []string{`warning: /etc/jackfield/config.yaml:1:1`, "the configuration in force", "v.com/c=d"}},
			"sockets":  {ExitOK, []string{`warning: /etc/jackfield/config.yaml:1:1`, "no sockets of running containers"}},
		}},
	{name: "rejected configuration", daemon: "{" + registered + ", " + inForce + `, "error": "stateDir cannot change"}}`, says: map[string]answer{
		"doctor": {ExitNo, []string{"ERROR    configuration  jackfield-nri rejects a newer configuration: stateDir cannot change", "note     configuration  in force until that is corrected"}},
		"status": {ExitNo, []string{"a newer configuration is rejected: stateDir cannot change"}},
	}},
	{name: "mount source that is missing", daemon: healthy, files: map[string]string{"/etc/cdi/a.json": mountSpec}, says: map[string]answer{
		"doctor":   {ExitNo, []string{`ERROR    cdi            /etc/cdi/a.json`, `"/gone": cannot be found on the host`}},
		"explain":  {ExitNo, []string{"would not start the container", `"/gone" cannot be found on the host`}},
		"validate": {ExitNo, []string{`"/gone": cannot be found on the host`}},
	}},
	{name: "hook program that is missing", daemon: healthy, files: map[string]string{"/etc/cdi/a.json": hookSpec}, says: map[string]answer{
		"doctor":   {ExitNo, []string{`ERROR    cdi            /etc/cdi/a.json`, `"/gone": cannot be found on the host`}},
		"explain":  {ExitNo, []string{"would not start the container", `"/gone" cannot be found on the host`}},
		"validate": {ExitNo, []string{`"/gone": cannot be found on the host`}},
	}},
	{name: "name that is not read", daemon: healthy, files: map[string]string{"/etc/cdi/a.json": "", "/etc/cdi/a.yml": goodSpec}, says: map[string]answer{
		"doctor":   {ExitOK, []string{`warning  cdi            /etc/cdi/a.yml declares kind "v.com/c" and is not read`}},
		"explain":  {ExitNo, []string{`/etc/cdi/a.yml declares kind "v.com/c" and is not read`}},
		"validate": {ExitOK, []string{"/etc/cdi/a.yml: warning: is not read under this name"}},
		"devices":  {ExitOK, []string{"no CDI devices in ", `/etc/cdi/a.yml declares kind "v.com/c" and is not read`}},
	}},
	{name: "shadowed file", daemon: healthy, files: map[string]string{"/var/run/cdi/b.json": goodSpec}, says: map[string]answer{
		"doctor":  {ExitOK, []string{"note     cdi            /etc/cdi/a.json is not used for v.com/c=d: /var/run/cdi/b.json"}},
		"explain": {ExitOK, []string{"file    /var/run/cdi/b.json"}},
		"devices": {ExitOK, []string{"/etc/cdi/a.json is not used for v.com/c=d: /var/run/cdi/b.json"}},
	}},
	{name: "CDI directory that cannot be read", daemon: healthy, files: map[string]string{"/etc/cdi/a.json": "", "/etc/cdi": "no directory"}, says: map[string]answer{
		"doctor":   {ExitNo, []string{`ERROR    cdi            read CDI spec directory "/etc/cdi": not a directory`}},
		"explain":  {ExitNo, []string{`read CDI spec directory "/etc/cdi": not a directory`}},
		"validate": {ExitNo, []string{"/etc/cdi"}},
		"devices":  {ExitError, []string{"/etc/cdi (cannot be read)", `read CDI spec directory "/etc/cdi": not a directory`}},
	}},
	{name: "Multus' record that cannot be read", daemon: healthy, files: map[string]string{
		"/var/lib/cni/multus/" + sandbox:                                   " ",
		"/var/run/k8s.cni.cncf.io/devinfo/cni/n-east-" + sandbox + "_net1": `{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"/run/vsw/m.sock"}}`,
	}, says: map[string]answer{
		"doctor":  {ExitNo, []string{"ERROR    multus", "/var/lib/cni/multus/" + sandbox, "delete the pod"}},
		"explain": {ExitError, []string{"not read: read Multus' networks of the sandbox", `network "n/east" on net1: unmanaged`}},
	}},
	{name: "CNI network that jackfield-cni refuses", daemon: healthy, files: map[string]string{
		"/etc/cni/net.d/10-a.conf": `{"cniVersion": "1.0.0", "name": "a", "type": "jackfield-cni", "vlan": 4095, "vswitch": "s", "device": {"type": "memif", "role": "slave"}}`,
	}, says: map[string]answer{
		"doctor":   {ExitNo, []string{"ERROR    networks       /etc/cni/net.d/10-a.conf", "vlan"}},
		"validate": {ExitNo, []string{"/etc/cni/net.d/10-a.conf", "vlan"}},
	}},
}

// Each command tells the same truth about a state of the node. An unreadable source is never green in all of them.
func TestCommandsAgreeAboutStateOfNode(t *testing.T) {
	for _, state := range nodeStates {
		t.Run(state.name, func(t *testing.T) {
			root := state.create(t)
			for command, usual := range healthyNode {
				want, special := state.says[command]
				if !special {
					want = usual
				}
				args := []string{command, "--root", root}
				switch command {
				case "explain":
					args = append(args, filepath.Join(root, "pod.yaml"))
					if _, err := os.Stat(filepath.Join(root, "var/lib/cni/multus", sandbox)); err == nil {
						args = append(args, "--sandbox-id", sandbox)
					}
				case "validate":
					args = append(args, "/etc/jackfield/config.yaml", "/etc/cdi")
					if _, err := os.Stat(filepath.Join(root, "etc/cni/net.d")); err == nil {
						args = append(args, "/etc/cni/net.d")
					}
				}
				var out bytes.Buffer
				got := Run(t.Context(), args, Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
				text := removeColors(out.String())
				for _, want := range want.texts {
					if !strings.Contains(text, want) {
						t.Errorf("%s does not say %q", command, want)
					}
				}
				if got != want.status || t.Failed() {
					t.Errorf("%s: exit status %d, must be %d:\n%s", command, got, want.status, text)
				}
			}
		})
	}
}

// create makes the root of a node in the state, with its daemon and its runtime's socket.
func (s *nodeState) create(t *testing.T) string {
	root, err := os.MkdirTemp("", "s") // short: a socket's address has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	write := func(file, content string) {
		file = filepath.Join(root, file)
		if content == "" {
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
			os.Remove(filepath.Dir(file)) // where it is empty
			return
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, content := range map[string]string{"/etc/jackfield/config.yaml": goodConfig, "/etc/cdi/a.json": goodSpec, "/pod.yaml": podManifest, "/run/vsw/.keep": "x"} {
		write(file, content)
	}
	for _, removes := range []bool{true, false} { // first, so that a file can replace a directory
		for file, content := range s.files {
			if removes == (content == "") {
				write(file, content)
			}
		}
	}
	if s.daemon != "" {
		go http.Serve(listenBelow(t, root, "/run/jackfield/status.sock"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s.daemon) }))
	}
	if !s.noNRI {
		listenBelow(t, root, "/var/run/nri/nri.sock")
	}
	return root
}

func listenBelow(t *testing.T, root, file string) net.Listener {
	file = filepath.Join(root, file)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(file, 0o755); err != nil {
		t.Fatal(err)
	}
	return l
}
