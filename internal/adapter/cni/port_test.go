// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/attach"
)

const (
	withPort   = `, "vswitch": "ovs0", "bridge": "br0"`
	nodeConfig = `
vswitches: [{name: ovs0, type: ovs, endpoint: /db.sock, bridges: [br0]}]
policy: {rules: [{name: all, for: {namespaces: [""]}, allow: {ports: ["ovs0/br0"]}}]}
`
)

// newNodeWithSwitch returns a node whose vswitch is a server that calls handle for each connection; nil for no
// server. test/cniports has the tests with a real vswitch.
func newNodeWithSwitch(t *testing.T, handle func(net.Conn)) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "cni") // the path of a socket is short
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := newNodeAt(t, dir)
	n.write("/etc/jackfield/config.yaml", nodeConfig)
	if handle == nil {
		return n
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "db.sock"))
	testkit.Must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return n
}

// A vswitch that fails in any way fails ADD with a code, and its port is not forgotten.
func TestAddWithSwitchThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		handle func(net.Conn)
		codes  []uint
	}{
		"closes": {func(net.Conn) {}, []uint{types.ErrTryAgainLater}},
		"garbage": {func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}, []uint{types.ErrTryAgainLater, codeIO, attach.CodeSwitch}},
	} {
		n := newNodeWithSwitch(t, c.handle)
		a := n.run(env("ADD"), confWith(withPort))
		if !containsCode(c.codes, a.code) || !strings.Contains(a.all, "ovs0") {
			t.Errorf("%s: code %d, %s; want one of %v", name, a.code, a.all, c.codes)
		}
		record := filepath.Join(n.dir, attach.DefaultStateDir, recordFileName("fast", testID, "net1"))
		if data, err := os.ReadFile(record); err != nil || !strings.Contains(string(data), `"vswitch":"ovs0"`) {
			t.Errorf("%s: the record is %s, %v", name, data, err)
		}
		for _, command := range []string{"DEL", "STATUS"} {
			if a := n.run(env(command), confWith(withPort)); a.code == 0 || !strings.Contains(a.all, "ovs0") {
				t.Errorf("%s: %s: code %d, %s", name, command, a.code, a.all)
			}
		}
	}
}

// An ADD that never reached the vswitch leaves nothing, not even an address, and DEL succeeds.
func TestAddWithSwitchThatIsDownLeavesNothing(t *testing.T) {
	n := newNodeWithSwitch(t, nil)
	n.write("/bin/lease", "#!/bin/sh\ntouch "+filepath.Join(n.dir, "leased")+"\n")
	testkit.Must(t, os.Chmod(filepath.Join(n.dir, "bin/lease"), 0o755))
	path := "CNI_PATH=" + filepath.Join(n.dir, "bin")
	conf := confWith(withPort + `, "ipam": {"type": "lease"}`)
	refuse := func(when string) {
		a := n.run(env("ADD", path), conf)
		if a.code != types.ErrTryAgainLater || !strings.Contains(a.all, "start the vswitch, or correct vswitches.ovs0.endpoint") {
			t.Errorf("%s: code %d, %s", when, a.code, a.all)
		}
		if _, err := os.Stat(filepath.Join(n.dir, "leased")); err == nil || len(n.files()) > 0 {
			t.Errorf("%s: ADD left %q, IPAM ran: %v", when, n.files(), err == nil)
		}
		for range 2 {
			if a := n.mustRun(env("DEL"), confWith(withPort)); !strings.Contains(a.stderr, "vswitches.ovs0.endpoint") {
				t.Errorf("%s: standard error of DEL: %s", when, a.stderr)
			}
		}
	}
	refuse("no socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(n.dir, "db.sock"), Net: "unix"})
	testkit.Must(t, err)
	l.SetUnlinkOnClose(false)
	testkit.Must(t, l.Close())
	refuse("connection refused")
}

func containsCode(codes []uint, code uint) bool {
	for _, c := range codes {
		if c == code {
			return true
		}
	}
	return false
}

// The file with the policy is the administrator's.
func TestNodeConfigurationMustBeTrusted(t *testing.T) {
	n := newNodeWithSwitch(t, nil)
	testkit.Must(t, os.Chmod(filepath.Join(n.dir, "etc/jackfield/config.yaml"), 0o666))
	if a := n.run(env("ADD"), confWith(withPort)); a.code != codeConfig || !strings.Contains(a.all, "0666") {
		t.Errorf("writable by all: code %d, %s", a.code, a.all)
	}
	n.write("/etc/jackfield/config.yaml", "vswitch: []\n")
	testkit.Must(t, os.Chmod(filepath.Join(n.dir, "etc/jackfield/config.yaml"), 0o644))
	if a := n.run(env("ADD"), confWith(withPort)); a.code != codeConfig || !strings.Contains(a.all, "config.yaml:1:1") {
		t.Errorf("invalid: code %d, %s", a.code, a.all)
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// On a node of a DaemonSet only jackfield-nri has the configuration. Its copy is trusted as the file is, and stands for the
// default file alone.
func TestCopyStandsForMissingNodeConfiguration(t *testing.T) {
	n := newNodeWithSwitch(t, nil)
	file, at := filepath.Join(n.dir, config.DefaultPath), filepath.Join(n.dir, config.DefaultCopyPath)
	testkit.Must(t, os.Remove(file))
	fails := func(what, conf string, code uint, texts ...string) {
		t.Helper()
		a := n.run(env("ADD"), conf)
		for _, text := range texts {
			if a.code != code || !strings.Contains(a.all, text) {
				t.Errorf("%s: code %d, %s; want code %d with %s", what, a.code, a.all, code, text)
			}
		}
	}
	fails("neither", confWith(withPort), codeConfig, "is missing", config.DefaultPath, config.DefaultCopyPath)
	testkit.Must(t, config.WriteCopy(n.host, config.DefaultCopyPath, config.DefaultPath, []byte(nodeConfig)))
	fails("copy", confWith(withPort), types.ErrTryAgainLater, "/db.sock")
	fails("unknown switch", confWith(strings.Replace(withPort, "ovs0", "ovs1", 1)), codeConfig, config.DefaultCopyPath)
	fails("policy", confWith(strings.Replace(withPort, "br0", "br1", 1)), codeConfig, config.DefaultCopyPath)
	testkit.Must(t, config.WriteCopy(n.host, config.DefaultCopyPath, config.DefaultPath, []byte(nodeConfig+"cni: {configFiles: [/etc/jackfield/other.yaml]}\n")))
	fails("another file", confWith(withPort+`, "configFile": "/etc/jackfield/other.yaml"`), codeConfig, "create /etc/jackfield/other.yaml")
	if a := n.run(env("STATUS"), confWith(withPort)); !strings.Contains(a.all, config.DefaultCopyPath) {
		t.Errorf("STATUS: %s", a.all)
	}
	testkit.Must(t, os.Chmod(at, 0o666))
	fails("writable by all", confWith(withPort), codeConfig, "0666", config.DefaultCopyPath)
	testkit.Must(t, os.Chmod(at, 0o600))
	if os.Geteuid() == 0 {
		testkit.Must(t, os.Chown(at, 65534, 65534))
		fails("of another user", confWith(withPort), codeConfig, "65534", config.DefaultCopyPath)
		testkit.Must(t, os.Chown(at, 0, 0))
	}
	testkit.Must(t, config.WriteCopy(n.host, config.DefaultCopyPath, "/etc/other.yaml", []byte(nodeConfig)))
	fails("copy of another file", confWith(withPort), codeConfig, "is missing")
	n.write(config.DefaultPath, "vswitches: []\n")
	fails("the file exists", confWith(withPort), codeConfig, "vswitches of "+config.DefaultPath+" has none")
}

// The time limit of an ADD includes the IPAM plugin, and what that plugin started.
func TestTimeoutEndsHungIPAMPlugin(t *testing.T) {
	n := newNodeWithSwitch(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for _, script := range []string{"exec sleep 600", "sleep 600"} {
		n.write("/bin/hang", "#!/bin/sh\n"+script+"\n")
		testkit.Must(t, os.Chmod(filepath.Join(n.dir, "bin/hang"), 0o755))
		a := n.run(env("ADD", "CNI_PATH="+filepath.Join(n.dir, "bin"), "PATH=/bin:/usr/bin"), confWith(withPort+`, "timeout": "3s", "ipam": {"type": "hang"}`))
		if a.code != types.ErrTryAgainLater || !strings.Contains(a.all, "IPAM plugin hang timed out") {
			t.Errorf("%s: code %d, %s", script, a.code, a.all)
		}
		if left := n.files(); len(left) > 0 {
			t.Errorf("%s: left %q", script, left)
		}
	}
}

// An IPAM plugin that hangs after it allocated an address has time to release it.
func TestAddressOfHungIPAMPluginIsReleased(t *testing.T) {
	n := newNodeWithSwitch(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	lease := filepath.Join(n.dir, "lease")
	n.write("/bin/hang", "#!/bin/sh\ncase $CNI_COMMAND in\nADD) touch "+lease+"; exec sleep 600;;\nDEL) rm -f "+lease+";;\nesac\n")
	testkit.Must(t, os.Chmod(filepath.Join(n.dir, "bin/hang"), 0o755))
	released := testkit.Until(func() bool {
		a := n.run(env("ADD", "CNI_PATH="+filepath.Join(n.dir, "bin"), "PATH=/bin:/usr/bin"), confWith(withPort+`, "timeout": "3s", "ipam": {"type": "hang"}`))
		if a.code != types.ErrTryAgainLater || !strings.Contains(a.all, "IPAM plugin hang timed out") {
			t.Fatalf("code %d, %s", a.code, a.all)
		}
		_, err := os.Stat(lease)
		return os.IsNotExist(err)
	})
	if !released {
		t.Error("the address stays allocated")
	}
}

// A device plugin's port exists already.
func TestAddRefusesVswitchBesideDevicePlugin(t *testing.T) {
	n := newNodeWithSwitch(t, nil)
	const copied = "/var/run/k8s.cni.cncf.io/devinfo/cni/" + infoName
	n.write(copied, `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "/run/vsw/p/s"}}`)
	a := n.run(env("ADD"), confOf("1.1.0", `"device": {"type": "vhost-user"}`+withPort+`, "runtimeConfig": {"CNIDeviceInfoFile": "`+copied+`"}`))
	if a.code != codeConfig || !strings.Contains(a.all, "remove vswitch") || !strings.Contains(a.all, "/run/vsw/p/s") {
		t.Errorf("code %d, %s", a.code, a.all)
	}
}

// The policy decides before anything is created, and before the vswitch is asked.
func TestAddAsksPolicyForPort(t *testing.T) {
	for name, c := range map[string]struct{ rule, args, text string }{
		"another namespace": {`for: {namespaces: [apps]}, allow: {ports: ["ovs0/br0"]}`, "CNI_ARGS=K8S_POD_NAMESPACE=other", "add to policy.rules"},
		"another bridge":    {`for: {namespaces: [apps]}, allow: {ports: ["ovs0/br1"]}`, "CNI_ARGS=K8S_POD_NAMESPACE=apps", "add to allow.ports"},
		"denied":            {`for: {namespaces: [apps]}, allow: {ports: ["ovs0/*"]}, deny: {ports: ["ovs0/br0"]}`, "CNI_ARGS=K8S_POD_NAMESPACE=apps", "denied by rule"},
	} {
		n := newNodeWithSwitch(t, nil)
		n.write("/etc/jackfield/config.yaml", "vswitches: [{name: ovs0, type: ovs, endpoint: /db.sock, bridges: [br0, br1]}]\npolicy: {rules: [{name: r, "+c.rule+"}]}\n")
		if a := n.run(env("ADD", c.args), confWith(withPort)); a.code != attach.CodeDenied || !strings.Contains(a.all, c.text) {
			t.Errorf("%s: code %d, %s; want code %d with %q", name, a.code, a.all, attach.CodeDenied, c.text)
		}
		if left := n.files(); len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
	}
}
