// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/record"
)

const (
	testID = "e061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"
	ownNS  = "/proc/self/ns/net"

	// infoName is the name of a device-info file of the attachment that is not the default.
	infoName = "any-net-" + testID + "_net1"

	// codeField is the code of errors of package attach for unknown and unsupported keys.
	codeField = types.ErrUnsupportedField
)

// node is a host root for a test, with the plugin's default directories below it.
type node struct {
	t    *testing.T
	dir  string
	host hostfs.Root

	reached func(step string) // is called with each step, unless nil
	maxTime time.Duration     // of every operation but ADD; 0 for the default
}

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeAt(t, t.TempDir())
}

func newNodeAt(t *testing.T, dir string) *node {
	t.Helper()
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	return &node{t: t, dir: dir, host: host}
}

// answer is what one execution gave.
type answer struct {
	out  string
	code uint // 0 for success
	msg  string
	all  string // message and details

	stderr string
}

// env is the environment of an attachment in the tests' own network namespace,
// which CNI_NETNS_OVERRIDE allows.
func env(command string, more ...string) []string {
	return append([]string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + testID, "CNI_NETNS=" + ownNS, "CNI_IFNAME=net1",
		"CNI_PATH=/nowhere", "CNI_NETNS_OVERRIDE=1"}, more...)
}

// run executes the plugin.
func (n *node) run(environ []string, conf string) answer {
	n.t.Helper()
	var out, stderr bytes.Buffer
	p := Plugin{Environ: environ, Stdin: strings.NewReader(conf), Stdout: &out, Stderr: &stderr, Host: n.host, reached: n.reached, maxTime: n.maxTime}
	err := p.Run(context.Background())
	a := answer{out: out.String(), stderr: stderr.String()}
	if err == nil {
		return a
	}
	var e struct {
		Version, Msg, Details string
		Code                  uint
	}
	var keys map[string]any
	if jsonErr := json.Unmarshal(out.Bytes(), &keys); jsonErr != nil {
		n.t.Fatalf("%v is printed as %q: %v", err, out.String(), jsonErr)
	}
	e.Version, _ = keys["cniVersion"].(string)
	e.Msg, _ = keys["msg"].(string)
	e.Details, _ = keys["details"].(string)
	code, _ := keys["code"].(float64)
	if e.Version == "" || e.Msg == "" || code == 0 {
		n.t.Fatalf("the error %q lacks cniVersion, code or msg", out.String())
	}
	return answer{out.String(), uint(code), e.Msg, e.Msg + ": " + e.Details, stderr.String()}
}

// mustRun executes the plugin, which must succeed.
func (n *node) mustRun(environ []string, conf string) answer {
	n.t.Helper()
	a := n.run(environ, conf)
	if a.code != 0 {
		n.t.Fatalf("%v failed: code %d, %s", environ[0], a.code, a.all)
	}
	return a
}

// write writes a file of the host.
func (n *node) write(path, data string) {
	n.t.Helper()
	file := filepath.Join(n.dir, path)
	testkit.Must(n.t, os.MkdirAll(filepath.Dir(file), 0o755))
	testkit.Must(n.t, os.WriteFile(file, []byte(data), 0o644))
}

// list writes a node's configuration that lists locations for networks.
func (n *node) list(lists string) {
	n.t.Helper()
	n.write(config.DefaultPath, "cni: {"+lists+"}\n")
}

// files lists what is below the plugin's directories, the lock of the device-info
// directory left out.
func (n *node) files() []string {
	n.t.Helper()
	var list []string
	for _, d := range []string{attach.DefaultSocketDir, attach.DefaultStateDir, attach.DefaultClaimsDir, "/var/run/k8s.cni.cncf.io/devinfo/cni"} {
		root := filepath.Join(n.dir, d)
		_ = filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
			if err == nil && p != root && filepath.Base(p) != ".jackfield.lock" {
				list = append(list, strings.TrimPrefix(p, n.dir))
			}
			return nil
		})
	}
	sort.Strings(list)
	return list
}

// readInfoFile reads the one device-info file there is.
func (n *node) readInfoFile() (name, content string) {
	n.t.Helper()
	for _, f := range n.files() {
		if strings.Contains(f, "/devinfo/cni/") {
			data, err := os.ReadFile(filepath.Join(n.dir, f))
			testkit.Must(n.t, err)
			return filepath.Base(f), string(data)
		}
	}
	n.t.Fatalf("there is no device-info file; there are %q", n.files())
	return "", ""
}

// conf is a configuration of version 1.1.0 with these keys beside the usual.
func confWith(keys string) string {
	return confOf("1.1.0", `"device": {"type": "vhost-user", "mode": "server"}`+keys)
}

func confOf(version, keys string) string {
	return `{"cniVersion": "` + version + `", "name": "fast", "type": "jackfield-cni", ` + keys + `}`
}

// recordFileName returns the name of a record's file.
func recordFileName(network, containerID, ifName string) string {
	return record.Key{Network: network, ContainerID: containerID, Interface: ifName}.FileName()
}

// socketDirName returns the name of an attachment's socket directory.
func socketDirName(network, containerID, ifName string) string {
	return attach.DirName(record.Key{Network: network, ContainerID: containerID, Interface: ifName})
}
