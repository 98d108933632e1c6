// SPDX-License-Identifier: Apache-2.0

package netavark

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/adapter/cni"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// The ID of a container of Podman, and the network namespace that Podman creates for it.
const (
	testID    = "e061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"
	testNetns = "/run/netns/netns-1"
)

// node is a host root for a test.
type node struct {
	t       *testing.T
	dir     string
	host    hostfs.Root
	reached func(step string)
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	var err error
	if n.host, err = hostfs.New(n.dir); err != nil {
		t.Fatal(err)
	}
	n.write("/etc/jackfield/config.yaml", "policy: {mode: enforce}\n")
	return n
}

func (n *node) write(path, text string) {
	n.t.Helper()
	file := filepath.Join(n.dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// run runs the plugin and returns what it prints, or the text of its error, which it prints as netavark expects it.
func (n *node) run(input string, args ...string) (out string, err error) {
	n.t.Helper()
	var stdout bytes.Buffer
	p := Plugin{Args: args, Stdin: strings.NewReader(input), Stdout: &stdout, Stderr: os.Stderr, Host: n.host, reached: n.reached}
	if err := p.Run(context.Background()); err == nil {
		return stdout.String(), nil
	}
	var printed map[string]string
	if err := json.Unmarshal(stdout.Bytes(), &printed); err != nil || len(printed) != 1 || printed["error"] == "" {
		n.t.Fatalf("an error is printed as %q", &stdout)
	}
	return "", fmt.Errorf("%s", printed["error"])
}

func (n *node) mustRun(input string, args ...string) string {
	n.t.Helper()
	out, err := n.run(input, args...)
	if err != nil {
		n.t.Fatalf("%q: %v", args, err)
	}
	return out
}

// files lists what attachments leave on the host.
func (n *node) files() []string {
	n.t.Helper()
	var list []string
	for _, dir := range []string{attach.DefaultSocketDir, attach.DefaultStateDir, "/run/jackfield/claims", "/var/run/k8s.cni.cncf.io/devinfo/cni"} {
		entries, err := os.ReadDir(filepath.Join(n.dir, dir))
		if err != nil && !os.IsNotExist(err) {
			n.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != ".jackfield.lock" {
				list = append(list, filepath.Join(dir, e.Name()))
			}
		}
	}
	slices.Sort(list)
	return list
}

// networkOf returns a network of Podman with options and other keys.
func networkOf(options, more string) string {
	return `{"name": "fast", "id": "2f259bab93aaaaa2542ba43ef33eb990d0999ee1b9924b557b7be53c0b7a1bb9", "driver": "jackfield-netavark",
		"ipv6_enabled": false, "internal": false, "dns_enabled": true, "options": ` + options + more + `}`
}

const (
	server  = `{"type": "vhost-user", "mode": "server"}`
	subnets = `, "subnets": [{"subnet": "10.88.0.0/16", "gateway": "10.88.0.1"}, {"subnet": "fd00::/64", "gateway": ""}]`
)

// executionOf returns the input of setup and teardown.
func executionOf(network, options string) string {
	return `{"container_id": "` + testID + `", "container_name": "c", "port_mappings": [{"container_port": 80, "host_ip": "", "host_port": 8080, "protocol": "tcp", "range": 1}],
		"network": ` + network + `, "network_options": {"interface_name": "eth0"` + options + `}}`
}

func TestInfoReportsVersions(t *testing.T) {
	for _, args := range [][]string{nil, {"info"}} {
		var info map[string]string
		if err := json.Unmarshal([]byte(newNode(t).mustRun("", args...)), &info); err != nil || info["version"] == "" || info["api_version"] != "1.0.0" {
			t.Errorf("%q: %v, %v", args, info, err)
		}
	}
	if line := newNode(t).mustRun("", "--version"); !strings.HasPrefix(line, "jackfield-netavark ") || !strings.Contains(line, " go1.") {
		t.Errorf("--version prints %q", line)
	}
}

func TestSetUpAndTearDown(t *testing.T) {
	n := newNode(t)
	input := executionOf(networkOf(server, subnets), `, "aliases": ["c"], "static_ips": ["10.88.0.5", "fd00::5"], "static_mac": "C2:11:22:33:44:55"`)
	out := n.mustRun(input, "setup", testNetns)
	const want = `{"dns_search_domains":[],"dns_server_ips":[],"interfaces":{"eth0":{"mac_address":"c2:11:22:33:44:55","subnets":[` +
		`{"ipnet":"10.88.0.5/16","gateway":"10.88.0.1"},{"ipnet":"fd00::5/64","gateway":null}]}}}` + "\n"
	if out != want {
		t.Errorf("setup prints\n%s, want\n%s", out, want)
	}
	files := n.files()
	if len(files) != 4 {
		t.Errorf("setup created %q, want a record, a claim, a socket directory and device-info", files)
	}
	info, err := os.ReadFile(filepath.Join(n.dir, "/var/run/k8s.cni.cncf.io/devinfo/cni/default-fast-"+testID+"_eth0"))
	if err != nil || !strings.Contains(string(info), `"mode": "server"`) || !strings.Contains(string(info), `"fd00::5/64"`) {
		t.Errorf("device-info is %s, %v", info, err)
	}
	// Podman repeats a setup after a teardown that it has lost.
	n.mustRun(input, "setup", "/run/netns/netns-2")
	if again := n.files(); !slices.Equal(again, files) {
		t.Errorf("a second setup leaves %q, want %q", again, files)
	}
	for range 2 {
		if out := n.mustRun(input, "teardown", testNetns); out != "" || len(n.files()) > 0 {
			t.Errorf("teardown prints %q and leaves %q", out, n.files())
		}
	}
}

// A teardown removes what a killed setup created, at whatever step it was.
func TestTearDownAfterKilledSetUp(t *testing.T) {
	var steps []string
	n := newNode(t)
	n.reached = func(step string) { steps = append(steps, step) }
	input := executionOf(networkOf(server, ""), "")
	n.mustRun(input, "setup", testNetns)
	n.reached = nil
	n.mustRun(input, "teardown", testNetns)
	if len(steps) < 5 {
		t.Fatalf("setup has the steps %q", steps)
	}
	for _, last := range steps {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: setup was not stopped", last)
				}
			}()
			n.reached = func(step string) {
				if step == last {
					panic(last)
				}
			}
			_, _ = n.run(input, "setup", testNetns)
		}()
		n.reached = nil
		n.mustRun(input, "teardown", testNetns)
		if left := n.files(); len(left) > 0 {
			t.Errorf("stopped at %q: teardown leaves %q", last, left)
		}
	}
}

// A network of CNI may have the same name. Its GC leaves the attachments of Podman.
func TestGarbageOfCNILeavesPodman(t *testing.T) {
	n := newNode(t)
	n.mustRun(executionOf(networkOf(server, ""), ""), "setup", testNetns)
	files := n.files()
	var out bytes.Buffer
	p := cni.Plugin{Environ: []string{"CNI_COMMAND=GC", "CNI_PATH=/nowhere"}, Stdout: &out, Stderr: &out, Host: n.host,
		Stdin: strings.NewReader(`{"cniVersion": "1.1.0", "name": "fast", "type": "jackfield-cni", "device": ` + server + `, "cni.dev/valid-attachments": []}`)}
	if err := p.Run(context.Background()); err != nil {
		t.Fatalf("GC: %v: %s", err, &out)
	}
	if left := n.files(); !slices.Equal(left, files) {
		t.Errorf("GC leaves %q of %q", left, files)
	}
}

// A key that occurs twice does not keep a teardown from removing the attachment. Its last value counts.
func TestTearDownAcceptsDuplicateKeys(t *testing.T) {
	n := newNode(t)
	n.mustRun(executionOf(networkOf(server, ""), ""), "setup", testNetns)
	twice := executionOf(networkOf(`{"type": "x", "type": "vhost-user", "mode": "server"}`, `, "internal": true, "internal": false`), `, "interface_name": "eth0"`)
	twice = strings.Replace(twice, `"container_id"`, `"container_id": "other", "container_id"`, 1)
	if _, err := n.run(twice, "setup", testNetns); err == nil || !strings.Contains(err.Error(), "a key must occur only once") {
		t.Errorf("setup: %v", err)
	}
	n.mustRun(twice, "teardown", testNetns)
	if left := n.files(); len(left) > 0 {
		t.Errorf("teardown leaves %q", left)
	}
}

// A teardown works although the network or the node's configuration have become invalid.
func TestTearDownIgnoresInvalidOptions(t *testing.T) {
	n := newNode(t)
	n.mustRun(executionOf(networkOf(server, ""), ""), "setup", testNetns)
	n.write("/etc/jackfield/config.yaml", "no configuration\n")
	network := strings.Replace(networkOf(`{"type": "x", "configFile": "/var/lib/x.yaml"}`, ""), `"internal": false`, `"internal": true`, 1)
	n.mustRun(executionOf(network, ""), "teardown", testNetns)
	if left := n.files(); len(left) > 0 {
		t.Errorf("teardown leaves %q", left)
	}
}

func TestCreateKeepsUnknownKeysOfNetwork(t *testing.T) {
	n := newNode(t)
	for more, ipam := range map[string]string{subnets: "", `, "labels": {"a": "b"}`: `{"driver":"none"}`} {
		var got map[string]json.RawMessage
		if err := json.Unmarshal([]byte(n.mustRun(networkOf(server, more), "create")), &got); err != nil {
			t.Fatal(err)
		}
		if string(got["dns_enabled"]) != "false" || string(got["name"]) != `"fast"` || string(got["ipam_options"]) != ipam || got["id"] == nil || got["options"] == nil {
			t.Errorf("create prints %s", got)
		}
		if strings.Contains(more, "labels") != (got["labels"] != nil) {
			t.Errorf("the network has labels %s", got["labels"])
		}
	}
}

func TestCreateRefusesInvalidOptions(t *testing.T) {
	n := newNode(t)
	n.write("/etc/jackfield/config.yaml", "vswitches: [{name: ovs0, type: ovs, endpoint: /run/db.sock, bridges: [br0]}]\n")
	for network, want := range map[string]string{
		networkOf(`null`, ""):                                                                                         `option type: invalid value "": must be "vhost-user" or "memif"`,
		networkOf(`{"type": "pci"}`, ""):                                                                              "devices.jackfield.dev",
		networkOf(`{"type": "vhost-user"}`, ""):                                                                       `option mode: invalid value "": must be server or client`,
		networkOf(`{"type": "vhost-user", "mode": "x"}`, ""):                                                          `option mode: invalid value "x": must be server or client`,
		networkOf(`{"type": "vhost-user", "role": "slave"}`, ""):                                                      `option role: a device of type vhost-user has no such option, but mode and path`,
		networkOf(`{"type": "memif"}`, ""):                                                                            `option role: invalid value "": must be master or slave`,
		networkOf(`{"type": "vhost-user", "mode": "server", "path": "../x"}`, ""):                                     `option path: invalid value "../x"`,
		networkOf(`{"type": "vhost-user", "mode": "server", "path": "`+strings.Repeat("x", 90)+`"}`, ""):              "at most 107",
		networkOf(`{"type": "vhost-user", "mode": "server", "brige": "br0"}`, ""):                                     `did you mean bridge?`,
		networkOf(`{"type": "vhost-user", "mode": "server", "bridge": "br0"}`, ""):                                    "only together with vswitch",
		networkOf(`{"type": "vhost-user", "mode": "server", "vswitch": "ovs1", "bridge": "br0"}`, ""):                 `did you mean ovs0?`,
		networkOf(`{"type": "vhost-user", "mode": "server", "vswitch": "ovs0", "bridge": "br1"}`, ""):                 `option bridge: invalid value "br1": must be one of the bridges of vswitch ovs0`,
		networkOf(`{"type": "vhost-user", "mode": "server", "vswitch": "ovs0", "bridge": "br0", "vlan": "4095"}`, ""): `option vlan: invalid value "4095": must be a number from 1 to 4094`,
		networkOf(`{"type": "vhost-user", "mode": "server", "vswitch": "ovs0", "bridge": "br0", "mtu": "x"}`, ""):     `option mtu: invalid value "x"`,
		networkOf(`{"type": "vhost-user", "mode": "server", "vswitch": "ovs0", "bridge": "br0", "queues": "0"}`, ""):  `option queues: invalid value "0"`,
		networkOf(`{"type": "vhost-user", "mode": "server", "vswitch": "ovs0", "bridge": "br0", "rate": "fast"}`, ""): `option rate: invalid value "fast"`,
		networkOf(`{"type": "vhost-user", "mode": "server", "timeout": "1s"}`, ""):                                    `option timeout: invalid value "1s": must be a duration from 3s to 2m0s`,
		networkOf(`{"type": "vhost-user", "mode": "server", "configFile": "/var/lib/x.yaml"}`, ""):                    `option configFile: invalid value "/var/lib/x.yaml": must be a clean path of a file below /etc`,
		networkOf(`{"type": "vhost-user", "mode": "server", "configFile": "/etc/../var/x.yaml"}`, ""):                 `option configFile`,
		networkOf(`{"type": "vhost-user", "mode": "server", "configFile": "/etc/none.yaml"}`, ""):                     "cni.configFiles of /etc/jackfield/config.yaml",
		strings.Replace(networkOf(server, ""), `"internal": false`, `"internal": true`, 1):                            `--internal`,
		networkOf(server, `, "network_interface": "enp1"`):                                                            `--interface-name: invalid value "enp1"`,
		networkOf(server, `, "routes": [{"destination": "10.0.0.0/8"}]`):                                              `--route`,
		networkOf(server, `, "ipam_options": {"driver": "dhcp"}`):                                                     `--ipam-driver: invalid value "dhcp"`,
		networkOf(server, `, "subnets": [{"subnet": "x"}]`):                                                           `subnets[0].subnet: found "x": `,
		strings.Replace(networkOf(server, ""), `"fast"`, `"../x"`, 1):                                                 `name: invalid value "../x"`,
		`null`:             `standard input: 1:1: invalid value null: must be an object`,
		`[]`:               `standard input`,
		`{`:                `standard input`,
		networkOf(`1`, ""): `options: found a number: must be an object`,
	} {
		if _, err := n.run(network, "create"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %s", network, err, want)
		}
	}
}

func TestSetUpRefusesInvalidInput(t *testing.T) {
	n := newNode(t)
	const network = `{"name": "fast", "options": {"type": "vhost-user", "mode": "server"}}`
	for input, want := range map[string]string{
		executionOf(network, `, "static_ips": ["10.0.0.1"]`):                                  "static_ips: invalid value 10.0.0.1: must be an address in a subnet of the network",
		executionOf(network, `, "static_mac": "01:00:00:00:00:00"`):                           "network_options.static_mac",
		executionOf(network, `, "options": {"z": "x", "y": "x", "host_interface_name": "x"}`): `"host_interface_name": networks of this driver have no option for a single container`,
		executionOf(`{"name": "fast", "options": {"type": "x"}}`, ""):                         "option type",
		strings.Replace(executionOf(network, ""), `"eth0"`, `"a/b"`, 1):                       "network_options.interface_name",
		strings.Replace(executionOf(network, ""), testID, "../../x", 1):                       "container_id",
		strings.Replace(executionOf(network, ""), testID, strings.Repeat("a", 200), 1):        "container_id",
		`{}`: "container_id",
	} {
		if _, err := n.run(input, "setup", testNetns); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %s", input, err, want)
		}
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("refused setups leave %q", left)
	}
	good := executionOf(network, "")
	for _, args := range [][]string{{"setup"}, {"setup", "relative"}, {"setup", testNetns, "more"}, {"teardown"}, {"create", "x"}, {"version"}, {"info", "x"}} {
		if _, err := n.run(good, args...); err == nil {
			t.Errorf("%q succeeds", args)
		}
	}
	if _, err := n.run(strings.Repeat(" ", maxInput+1), "setup", testNetns); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("too long: %v", err)
	}
}

// What another program created is not removed.
func TestSetUpLeavesForeignDirectory(t *testing.T) {
	n := newNode(t)
	input := executionOf(networkOf(server, ""), "")
	n.mustRun(input, "setup", testNetns)
	var dir string
	for _, f := range n.files() {
		if strings.HasPrefix(f, attach.DefaultSocketDir) {
			dir = f
		}
	}
	n.mustRun(input, "teardown", testNetns)
	n.write(dir+"/file", "x")
	if _, err := n.run(input, "setup", testNetns); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("setup: %v", err)
	}
	n.mustRun(input, "teardown", testNetns)
	if _, err := os.Stat(filepath.Join(n.dir, dir, "file")); err != nil {
		t.Error(err)
	}
}

func FuzzInput(f *testing.F) {
	f.Add([]byte(executionOf(networkOf(server, subnets), `, "static_ips": ["10.88.0.5"]`)))
	f.Add([]byte(networkOf(`{"type": "memif", "role": "slave", "mtu": "1500", "rate": "1G"}`, `, "routes": []`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := newNode(t)
		for _, args := range [][]string{{"create"}, {"setup", testNetns}, {"teardown", testNetns}} {
			if _, err := n.run(string(data), args...); err != nil && len(err.Error()) > 8<<10 {
				t.Errorf("%q: an error of %d bytes", args, len(err.Error()))
			}
		}
		if left := n.files(); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	})
}

// A host without a configuration has the defaults, as for jackfield-cni. A file that an option names must be listed.
func TestCreateWithoutConfiguration(t *testing.T) {
	n := newNode(t)
	if err := os.Remove(filepath.Join(n.dir, "etc/jackfield/config.yaml")); err != nil {
		t.Fatal(err)
	}
	const network = `{"name": "fast", "driver": "jackfield-netavark", "options": {"type": "vhost-user", "mode": "server"%s}}`
	if _, err := n.run(fmt.Sprintf(network, ""), "create"); err != nil {
		t.Error(err)
	}
	for option, want := range map[string]string{
		`, "configFile": "/etc/other.yaml"`: `"/etc/other.yaml": a network can choose only a file`,
		`, "vswitch": "ovs0"`:               "create /etc/jackfield/config.yaml",
	} {
		if _, err := n.run(fmt.Sprintf(network, option), "create"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", option, err, want)
		}
	}
}

// A configuration file of a user other than root does not choose directories for root.
func TestConfigurationOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	n := newNode(t)
	if err := os.Chown(filepath.Join(n.dir, "etc/jackfield/config.yaml"), 12345, -1); err != nil {
		t.Fatal(err)
	}
	const network = `{"name": "fast", "driver": "jackfield-netavark", "options": {"type": "vhost-user", "mode": "server"}}`
	if _, err := n.run(network, "create"); err == nil || !strings.Contains(err.Error(), "uid 12345") {
		t.Errorf("the configuration is read: %v", err)
	}
}
