// SPDX-License-Identifier: Apache-2.0

package cniports

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/adapter/cni"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/test/ovs"
)

// rootEnv names the host root in the environment of a process that is the plugin.
const rootEnv = "JACKFIELD_TEST_CNI_ROOT"

func TestMain(m *testing.M) {
	if root := os.Getenv(rootEnv); root != "" {
		os.Exit(runPlugin(root))
	}
	os.Exit(m.Run())
}

func runPlugin(root string) int {
	host, err := hostfs.New(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	p := cni.Plugin{Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Host: host}
	if p.Run(context.Background()) != nil {
		return 1
	}
	return 0
}

// node is a host root with a configuration, and a vswitch whose run directory it is.
type node struct {
	t testing.TB
	s *ovs.Switch
}

const (
	configFile = "/etc/jackfield/config.yaml"
	nodeConfig = `
vswitches:
  - {name: ovs0, type: ovs, endpoint: /db.sock, bridges: [br0, br9], defaults: {bridge: br0, mtu: 1500, queues: 2}}
policy:
  rules:
    - {name: fast-path, for: {namespaces: [apps]}, allow: {ports: ["ovs0/br9", {port: "ovs0/br0", vlans: ["100-199"]}]}}
`
	socketsDir = "/var/run/jackfield/sockets"
	recordsDir = "/var/run/jackfield/cni"
	infoDir    = "/var/run/k8s.cni.cncf.io/devinfo/cni"
)

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t, ovs.Start(t)}
	n.configure(nodeConfig)
	return n
}

func (n *node) configure(text string) {
	n.t.Helper()
	file := filepath.Join(n.s.Dir, configFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// conf returns a network configuration with more keys.
func conf(keys string) string {
	return `{"cniVersion": "1.1.0", "name": "fast", "type": "jackfield-cni", "vswitch": "ovs0", "vlan": 100` + keys + `}`
}

const (
	server = `, "device": {"type": "vhost-user", "mode": "server"}`
	client = `, "device": {"type": "vhost-user", "mode": "client"}`
)

func environ(command, container string, more ...string) []string {
	return append([]string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + container, "CNI_IFNAME=net1", "CNI_NETNS=/proc/self/ns/net", "CNI_NETNS_OVERRIDE=1",
		"CNI_PATH=/nowhere", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=apps;K8S_POD_NAME=web-0"}, more...)
}

// answer is what the plugin printed.
type answer struct {
	out          string
	Code         uint
	Msg, Details string
}

func (a answer) String() string { return fmt.Sprintf("code %d, %s: %s", a.Code, a.Msg, a.Details) }

// run runs the plugin in this process.
func (n *node) run(environ []string, conf string) answer {
	n.t.Helper()
	host, err := hostfs.New(n.s.Dir)
	if err != nil {
		n.t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	p := cni.Plugin{Environ: environ, Stdin: strings.NewReader(conf), Stdout: &out, Stderr: &stderr, Host: host}
	a := answer{}
	if p.Run(n.t.Context()) != nil {
		if err := json.Unmarshal(out.Bytes(), &a); err != nil {
			n.t.Errorf("%v: %s", err, out.String())
		}
	}
	a.out = out.String()
	return a
}

func (n *node) mustRun(environ []string, conf string) answer {
	n.t.Helper()
	a := n.run(environ, conf)
	if a.Code != 0 {
		n.t.Fatalf("%s: %s", environ[0], a)
	}
	return a
}

// start starts the plugin in a process of its own.
func (n *node) start(environ []string, conf string) *exec.Cmd {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(n.t.Context(), self)
	cmd.Env = append(environ, rootEnv+"="+n.s.Dir)
	cmd.Stdin = strings.NewReader(conf)
	cmd.Stdout = &bytes.Buffer{}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	return cmd
}

// ports lists the ports of a bridge.
func (n *node) ports() []string {
	n.t.Helper()
	return strings.Fields(n.s.Vsctl("list-ports", "br0"))
}

// files lists what the plugin has created on the host.
func (n *node) files() []string {
	n.t.Helper()
	var list []string
	for _, dir := range []string{socketsDir, recordsDir, "/var/run/jackfield/claims", infoDir} {
		root := filepath.Join(n.s.Dir, dir)
		_ = filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
			if err == nil && p != root && filepath.Base(p) != ".jackfield.lock" {
				list = append(list, strings.TrimPrefix(p, n.s.Dir))
			}
			return nil
		})
	}
	slices.Sort(list)
	return list
}

// checkNothingLeft checks that neither the host nor the vswitch has anything of an attachment.
func (n *node) checkNothingLeft(after string) {
	n.t.Helper()
	if left := append(n.files(), n.ports()...); len(left) > 0 {
		n.t.Errorf("%s left %q", after, left)
	}
}

// info returns the device-info file of a container.
func (n *node) info(container string) (info struct {
	VhostUser struct{ Mode, Path string } `json:"vhost-user"`
	Interface struct {
		MAC         string
		MTU, Queues int
		IPs         []string
	} `json:"jackfield.dev/interface"`
}) {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.s.Dir, infoDir, "apps-fast-"+container+"_net1"))
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return info
}
