// SPDX-License-Identifier: Apache-2.0

package grout_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/adapter/cni"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// The CNI plugin creates ports of both types, with a socket of grout or of the application.
func TestCNIPluginCreatesPorts(t *testing.T) {
	s, _, dir := start(t)
	nodeConfig := fmt.Sprintf(`
cni: {stateDirs: [%[3]s/records], claimsDirs: [%[3]s/claims], socketDirs: [%[3]s/s], deviceInfoDirs: [%[3]s/info]}
vswitches: [{name: grout0, type: grout, endpoint: %[1]s, grcli: %[2]s, bridges: [br0]}]
policy: {rules: [{name: all, for: {namespaces: [""]}, allow: {ports: ["grout0/br0"]}}]}
`, s.Socket, s.Grcli, dir)
	// The jail has an /etc of its own.
	file, sockets := config.DefaultPath, filepath.Join(dir, "s")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(nodeConfig), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
	execute := func(command, conf string) (string, error) {
		var out bytes.Buffer
		p := cni.Plugin{Stdin: strings.NewReader(conf), Stdout: &out, Stderr: os.Stderr, Environ: []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_IFNAME=net1",
			"CNI_NETNS=/proc/self/ns/net", "CNI_NETNS_OVERRIDE=1", "CNI_PATH=/nowhere"}}
		err := p.Run(t.Context())
		return out.String(), err
	}
	run := func(command, conf string) string {
		t.Helper()
		out, err := execute(command, conf)
		if err != nil {
			t.Fatalf("%s: %s", command, out)
		}
		return out
	}
	confOf := func(device string) string {
		return `{"cniVersion": "1.1.0", "name": "fast", "type": "jackfield-cni", "vswitch": "grout0", "bridge": "br0", "socketDir": "` + sockets + `",
			"stateDir": "` + dir + `/records", "claimsDir": "` + dir + `/claims", "deviceInfoDir": "` + dir + `/info", "device": ` + device + `}`
	}
	name := vswitch.PortName(vswitch.Owner{ContainerID: "c1", Interface: "net1"})
	for device, groutListens := range map[string]bool{
		`{"type": "vhost-user", "mode": "client", "path": "s"}`: true,
		`{"type": "vhost-user", "mode": "server", "path": "s"}`: false,
		`{"type": "memif", "role": "slave", "path": "s"}`:       true,
	} {
		conf := confOf(device)
		run("STATUS", conf)
		var result struct {
			Interfaces []struct{ SocketPath string }
		}
		added := run("ADD", conf)
		if err := json.Unmarshal([]byte(added), &result); err != nil || len(result.Interfaces) != 1 {
			t.Fatalf("%v: %s", err, added)
		}
		socket := result.Interfaces[0].SocketPath
		if found, _ := s.Interface(name); !strings.Contains(found.Devargs, socket) || found.Domain != "br0" {
			t.Errorf("%s: grout has %+v, want socket %s", device, found, socket)
		}
		if _, err := os.Stat(socket); (err == nil) != groutListens {
			t.Errorf("%s: socket of grout: %v", device, err)
		}
		run("CHECK", strings.TrimSuffix(conf, "}")+`, "prevResult": `+added+"}")
		run("DEL", conf)
		if found, ok := s.Interface(name); ok {
			t.Errorf("%s: DEL left %+v", device, found)
		}
		if left, err := os.ReadDir(sockets); err != nil || len(left) > 0 {
			t.Errorf("%s: DEL left %v, %v", device, left, err)
		}
	} // grout cannot wait for the application's memif socket.
	out, err := execute("ADD", confOf(`{"type": "memif", "role": "master"}`))
	if err == nil || !strings.Contains(out, "device.role") || !strings.Contains(out, "line 2, column") {
		t.Errorf("memif socket of the application: %s", out)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "records")); err != nil || len(left) > 0 {
		t.Errorf("the refused ADD left %v, %v", left, err)
	}
}
