// SPDX-License-Identifier: Apache-2.0

package grout_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/adapter/cni"
)

// page is the how-to, whose commands, configuration and networks are run here.
const page = "../../../docs/how-to/create-ports.md"

// blocks returns the page's blocks of a language.
func blocks(t *testing.T, text, language string) []string {
	t.Helper()
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// runCNI runs the CNI plugin and returns what it prints, and the code of its error.
func runCNI(t *testing.T, command, network string) (out string, code uint) {
	t.Helper()
	environ := []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + strings.Repeat("5a", 32), "CNI_IFNAME=net1", "CNI_NETNS=/proc/self/ns/net", "CNI_NETNS_OVERRIDE=1",
		"CNI_PATH=/nowhere", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=dpdk-a;K8S_POD_NAME=forwarder"}
	var stdout, stderr bytes.Buffer
	p := cni.Plugin{Environ: environ, Stdin: strings.NewReader(network), Stdout: &stdout, Stderr: &stderr}
	if p.Run(t.Context()) != nil {
		var e struct{ Code uint }
		if err := json.Unmarshal(stdout.Bytes(), &e); err != nil || e.Code == 0 {
			t.Fatalf("%s: %v: %s %s", command, err, &stdout, &stderr)
		}
		return stdout.String(), e.Code
	}
	return stdout.String(), 0
}

func TestGroutHowToCreatesPorts(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(data), "\n## grout\n")
	if !found {
		t.Fatal("the page has no section on grout")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	s, d, _ := start(t)
	s.Run("interface", "del", "br0")
	commands := blocks(t, text, "sh")
	documents := blocks(t, text, "yaml")
	if len(commands) != 2 || len(documents) != 2 {
		t.Fatalf("the page has %d blocks of commands and %d of YAML", len(commands), len(documents))
	}
	run := func(block string) string {
		t.Helper()
		arguments, ok := strings.CutPrefix(strings.TrimSpace(block), "grcli ")
		if !ok {
			t.Fatalf("%q is no command of grcli", block)
		}
		return s.Run(strings.Fields(arguments)...)
	}
	run(commands[0])

	config := strings.NewReplacer("/run/grout.sock", s.Socket, "/usr/bin/grcli", s.Grcli).Replace(documents[0])
	if err := os.MkdirAll("/etc/jackfield", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll("/etc/jackfield") })
	if err := os.WriteFile("/etc/jackfield/config.yaml", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Spec struct{ Config string }
	}
	if err := yaml.Unmarshal([]byte(documents[1]), &definition); err != nil {
		t.Fatal(err)
	}
	network := definition.Spec.Config
	const device = `{"type": "memif", "role": "slave"}`
	if !strings.Contains(network, device) {
		t.Fatalf("the network has another device:\n%s", network)
	}

	add := func(network string) {
		t.Helper()
		if out, code := runCNI(t, "ADD", network); code != 0 {
			t.Fatalf("ADD: %s", out)
		}
		ports := list(t, d)
		if len(ports) != 1 || ports[0].Bridge != "br0" || ports[0].Owner.Network != "fast" {
			t.Fatalf("after ADD grout has %+v", ports)
		}
		i, _ := s.Interface(ports[0].Name)
		if want := "jackfield:" + strings.Repeat("5a", 32) + "/net1/fast"; i.Description != want {
			t.Errorf("the description is %q, want %q", i.Description, want)
		}
		if shown := run(commands[1]); !strings.Contains(shown, `"jf`) || !strings.Contains(shown, `"domain":"br0"`) {
			t.Errorf("%s prints %s", commands[1], shown)
		}
		if out, code := runCNI(t, "DEL", network); code != 0 {
			t.Fatalf("DEL: %s", out)
		}
		if ports := s.Ports(); len(ports) != 0 {
			t.Fatalf("after DEL grout has %q", ports)
		}
	}
	// Each device in the table.
	devices := regexp.MustCompile("(?m)^\\| `({[^`]*})` \\|").FindAllStringSubmatch(text, -1)
	if len(devices) != 3 {
		t.Fatalf("the table has %d devices", len(devices))
	}
	for _, m := range devices {
		add(strings.Replace(network, device, m[1], 1))
	}
	// What the page says is refused.
	for _, change := range []string{
		`{"type": "memif", "role": "master"}`, device + `, "vlan": 7`, device + `, "rate": "1G"`, device + `, "mtu": 9000`,
	} {
		if out, code := runCNI(t, "ADD", strings.Replace(network, device, change, 1)); code != 104 {
			t.Errorf("ADD with %s: code %d, want 104: %s", change, code, out)
		}
		if ports := s.Ports(); len(ports) != 0 {
			t.Fatalf("a failed ADD leaves %q", ports)
		}
	}
}
