// SPDX-License-Identifier: Apache-2.0

package vpp_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/adapter/cni"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/test/vswitch/vpp"
)

// The configuration and the networks of the how-to create ports.
func TestVPPHowToCreatesPorts(t *testing.T) {
	data, err := os.ReadFile("../../../docs/how-to/create-ports.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(data), "\n## VPP\n")
	if !found {
		t.Fatal("the page has no section on VPP")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	documents := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(documents) != 2 {
		t.Fatalf("the page has %d blocks of YAML", len(documents))
	}
	root, err := os.MkdirTemp("", "vpp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	for _, dir := range []string{"etc/jackfield", "run/vpp", "var"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../run", filepath.Join(root, "var/run")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/jackfield/config.yaml"), []byte(documents[0][1]), 0o644); err != nil {
		t.Fatal(err)
	}
	s := vpp.Start(t, filepath.Join(root, "run/vpp"))
	s.Root = root
	s.AddBridge(1)
	uplink := regexp.MustCompile("uplink: (.*)").FindStringSubmatch(documents[0][1])[1]
	s.AddInterface(vpp.Interface{Type: "hardware", Name: uplink})
	ports := func() []vpp.Interface { return s.Interfaces()[1:] }
	var definition struct {
		Spec struct{ Config string }
	}
	if err := yaml.Unmarshal([]byte(documents[1][1]), &definition); err != nil {
		t.Fatal(err)
	}
	network := definition.Spec.Config
	const device = `{"type": "memif", "role": "master"}`
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	run := func(command, network string) (out string, code uint) {
		t.Helper()
		environ := []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + strings.Repeat("5a", 32), "CNI_IFNAME=net1", "CNI_NETNS=/proc/self/ns/net", "CNI_NETNS_OVERRIDE=1",
			"CNI_PATH=/nowhere", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=dpdk-a;K8S_POD_NAME=forwarder"}
		var stdout bytes.Buffer
		p := cni.Plugin{Environ: environ, Stdin: strings.NewReader(network), Stdout: &stdout, Stderr: &bytes.Buffer{}, Host: host}
		if p.Run(t.Context()) == nil {
			return stdout.String(), 0
		}
		var e struct{ Code uint }
		if err := json.Unmarshal(stdout.Bytes(), &e); err != nil || e.Code == 0 {
			t.Fatalf("%s: %v: %s", command, err, &stdout)
		}
		return stdout.String(), e.Code
	}
	devices := regexp.MustCompile("(?m)^\\| `({[^`]*})` \\|").FindAllStringSubmatch(text, -1)
	if len(devices) != 4 || !strings.Contains(network, device) {
		t.Fatalf("the table has %d devices, and the network is:\n%s", len(devices), network)
	}
	for _, m := range devices {
		network := strings.Replace(network, device, m[1], 1)
		if out, code := run("ADD", network); code != 0 {
			t.Fatalf("ADD with %s: %s", m[1], out)
		}
		if have := ports(); len(have) != 1 || have[0].Bridge != 1 || !have[0].Up || !strings.HasPrefix(have[0].Tag, "jf/") {
			t.Fatalf("after ADD with %s VPP has %+v", m[1], have)
		}
		if out, code := run("DEL", network); code != 0 {
			t.Fatalf("DEL: %s", out)
		}
		if have := ports(); len(have) != 0 || s.MemifSockets() != 0 {
			t.Fatalf("after DEL VPP has %+v", have)
		}
	}
	vlanAndRate := strings.Replace(network, device, device+`, "vlan": 100, "rate": "1G"`, 1)
	result, code := run("ADD", vlanAndRate)
	if code != 0 {
		t.Fatalf("ADD: %s", result)
	}
	withResult := strings.TrimSuffix(strings.TrimSpace(vlanAndRate), "}") + `, "prevResult": ` + result + "}"
	if out, code := run("CHECK", withResult); code != 0 {
		t.Errorf("CHECK: %s", out)
	}
	if have := ports(); len(have) != 2 || have[0].Bridge != 4196 || have[1].Bridge != 4196 || len(s.Policers()) != 1 {
		t.Errorf("with VLAN and rate VPP has %+v and %v", have, s.Policers())
	}
	if out, code := run("DEL", vlanAndRate); code != 0 || len(ports()) != 0 || len(s.Policers()) != 0 || len(s.Bridges()) != 1 {
		t.Errorf("DEL: %s; VPP has %+v, %v and %v", out, ports(), s.Policers(), s.Bridges())
	}
	s.Delete(s.Interfaces()[0].Index) // the uplink
	if out, code := run("ADD", vlanAndRate); code != 104 || len(s.Interfaces()) != 0 || len(s.Policers()) != 0 {
		t.Errorf("ADD without the uplink: code %d, want 104: %s", code, out)
	}
}
