// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
)

func FuzzConfig(f *testing.F) {
	const head = `{"name": "fast", "type": "jackfield-cni", `
	for _, keys := range []string{``, `, "runtimeConfig": {"mac": "c2:11:22:33:44:55", "ips": ["10.0.0.1/24"], "dns": {"servers": ["10.0.0.1"]}, "bandwidth": {"ingressRate": 1}}`,
		`, "args": {"cni": {"labels": [{"key": "a", "value": "b"}], "ips": ["10.0.0.1"]}}, "ipam": {"type": "host-local"}`,
		`, "vswitch": "ovs0", "bridge": "br0", "mtu": 9000, "vlan": 7, "queues": 2, "rate": "1G", "configFile": "/etc/jackfield/x.yaml", "timeout": "20s"`,
		`, "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "b"}], "dns": {"domain": "x"}, "socketDir": "/s"`} {
		f.Add([]byte(head+`"cniVersion": "1.1.0", "device": {"type": "vhost-user", "mode": "server"}`+keys+`}`), true)
		f.Add([]byte(head+`"cniVersion": "0.3.1", "device": {"type": "memif", "role": "slave"}`+keys+`}`), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, permissive bool) {
		c, err := parseConfig(data, permissive)
		if err != nil {
			e := attach.AsError(err)
			if !slices.Contains([]uint{types.ErrUnsupportedField, types.ErrInvalidNetworkConfig, types.ErrDecodingFailure}, e.Code) || e.Msg == "" {
				t.Fatalf("code %d, %s", e.Code, e.Msg)
			}
			if _, err := json.Marshal(e); err != nil {
				t.Fatal(err)
			}
			return
		}
		if permissive {
			return
		}
		// What is accepted stays below the socket directory and fits a socket address.
		c.ContainerID, c.Interface = strings.Repeat("e", 64), "net1"
		info, err := c.PlanSocket()
		if err != nil || info == nil {
			return
		}
		socket := attach.SocketPath(info)
		if !strings.HasPrefix(socket, "@") && (!strings.HasPrefix(socket, c.SocketDir+"/") || strings.Contains(socket, "/../") || len(socket) > 107) {
			t.Fatalf("the socket of %s is %q", data, socket)
		}
		if err := info.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// parseConfig parses a configuration and reads its keys.
func parseConfig(data []byte, permissive bool) (*Config, error) {
	c, err := ParseHeader(data)
	if err != nil {
		return nil, err
	}
	return c, c.ReadKeys(permissive)
}

func TestConfigurationSetsDirectories(t *testing.T) {
	c, err := parseConfig([]byte(`{"cniVersion":"1.1.0","name":"n","type":"jackfield-cni","device":{"type":"vhost-user","mode":"server"},
		"socketDir":"/x/sockets","stateDir":"/x/state","claimsDir":"/x/claims","deviceInfoDir":"/x/devinfo"}`), false)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, config.DefaultPath)
	const lists = "socketDirs: [/x/sockets], stateDirs: [/x/state], claimsDirs: [/x/claims], deviceInfoDirs: [/x/devinfo]"
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("cni: {"+lists+"}\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if c.Root, err = hostfs.New(dir); err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyLocations(false); err != nil {
		t.Fatal(err)
	}
	if got := [4]string{c.SocketDir, c.StateDir, c.ClaimsDir, c.InfoDir}; got != [4]string{"/x/sockets", "/x/state", "/x/claims", "/x/devinfo"} {
		t.Errorf("directories are %q", got)
	}
}
