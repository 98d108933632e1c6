// SPDX-License-Identifier: Apache-2.0

package ocivalid_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/adapter/hook"
	"github.com/jackfield/jackfield/test/ocivalid"
)

// What the hook prints at precreate is a valid configuration, with every kind of edit.
func TestHookPrintsValidConfigurations(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root, which CI promises")
		}
		t.Skip("skipped: only root gives containers access to sockets")
	}
	dir, err := os.MkdirTemp("/tmp", "jf") // a socket address is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range map[string]string{
		"cdi/v.json": `{"cdiVersion": "0.8.0", "kind": "v.com/c", "devices": [
			{"name": "all", "containerEdits": {"env": ["V=a"], "additionalGids": [5],
				"deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/null", "permissions": "rw"}],
				"mounts": [{"hostPath": "/tmp", "containerPath": "/opt/v", "options": ["ro", "bind"]}],
				"hooks": [{"hookName": "createContainer", "path": "/usr/bin/true", "args": ["true"]}]}}]}`,
		"devinfo/ns-net-s1_net1": `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "DIR/sock/port/vhost.sock"}}`,
		"sock/port/README":       "",
		"config.yaml": `cdi: {specDirs: [DIR/cdi]}
deviceInfo: {cniDir: DIR/devinfo}
kubelet: {podResourcesSocket: DIR/kubelet.sock}
sockets: {roots: [DIR/sock], staging: directory}
stateDir: DIR/state
policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {cdi: ["v.com/c=*"], sockets: ["DIR/sock/**"]}}]}
`,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", dir+"/sock/port/vhost.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const pod = `"io.kubernetes.cri.sandbox-id": "s1", "io.kubernetes.cri.sandbox-namespace": "ns", "io.kubernetes.cri.sandbox-name": "p", "io.kubernetes.cri.container-name": "c"`
	const userNS = `{"namespaces": [{"type": "user"}], "uidMappings": [{"hostID": 100000, "size": 65536}], "gidMappings": [{"hostID": 100000, "size": 65536}]}`
	for _, tc := range []struct{ name, annotations, linux, want string }{
		{"device", `"devices.jackfield.dev": "v.com/c=all"`, `{}`, `"V=a"`},
		{"user namespace", `"devices.jackfield.dev": "v.com/c=all"`, userNS, `"V=a"`},
		{"socket", `"networks.jackfield.dev": "net"`, `{}`, "JACKFIELD_NET1_SOCKET="},
		{"device and socket", `"devices.jackfield.dev": "v.com/c=all", "networks.jackfield.dev": "net"`, `{}`, `"V=a"`},
		{"no request", `"a": "b"`, `{}`, `"a"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := `{"ociVersion": "1.0.2", "process": {"env": ["A=1"], "user": {"uid": 0}}, "root": {"path": "/r"}, "annotations": {` + pod + `, ` + tc.annotations + `}, "linux": ` + tc.linux + `}`
			var after bytes.Buffer
			err := hook.Run(t.Context(), []string{"--config", dir + "/config.yaml", "--container-id", "c1", "precreate"},
				hook.Env{Stdin: strings.NewReader(before), Stdout: &after, Self: func() (string, error) { return "/usr/bin/jackfield-hook", nil }})
			if err != nil || !strings.Contains(after.String(), tc.want) {
				t.Fatalf("%v: %s", err, &after)
			}
			ocivalid.CheckText(t, []byte(before), after.Bytes())
		})
	}
}
