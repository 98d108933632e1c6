// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/internal/port/record"
	pkgvswitch "github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/ovs"
)

const vswitchYAML = observedYAML + `
vswitches: [{name: ovs0, type: ovs, endpoint: /run/ovs/db.sock, bridges: [br0]}]
`

// attachPort records a port of a pod, as an ADD of jackfield-cni does, and returns its name.
func (n *node) attachPort(sandboxID string) string {
	n.t.Helper()
	owner := pkgvswitch.Owner{ContainerID: sandboxID, Interface: "net1", Network: "fast", Namespace: "dpdk-1", Pod: "p"}
	port := pkgvswitch.Port{Name: pkgvswitch.PortName(owner), Owner: owner, Type: pkgvswitch.VhostUser, Socket: "/run/vsw/" + sandboxID[:8] + ".sock", Bridge: "br0"}
	store, err := record.Open(n.host(), record.DefaultDir)
	check(n.t, err)
	defer store.Close()
	check(n.t, store.Create(&record.Record{
		Key:     record.Key{Network: "fast", ContainerID: sandboxID, Interface: "net1"},
		InfoDir: "/d", InfoFile: "f",
		Info:   &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version, VhostUser: &deviceinfo.VhostUser{Mode: "server", Path: port.Socket}},
		Switch: "ovs0", Port: &port,
	}))
	return port.Name
}

// The plugin has the ports of living pods on a real Open vSwitch, also after the switch lost them.
// Metrics, status and doctor report the switch, and no pod waits for it.
func TestPortsOfLivingPodsAreKept(t *testing.T) {
	s := ovs.Start(t)
	n := preparedNode(t, vswitchYAML, nritest.Options{}, func(n *node) { check(t, os.Symlink(s.Dir, n.path("/run/ovs"))) })
	pod := nritest.NewPod("dpdk-1", "p", nil)
	name := n.attachPort(pod.Id)
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	vswitch := func(what string, ok func(v pkgvswitch.Status) bool) {
		t.Helper()
		n.status(what, func(s *status.Node) bool { return len(s.Vswitches) == 1 && ok(s.Vswitches[0]) })
	}
	run := func(command string) (int, string) {
		var out bytes.Buffer
		code := cli.Run(t.Context(), []string{command, "--root", n.dir}, cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
		return code, out.String()
	}

	vswitch("the port of the pod", func(v pkgvswitch.Status) bool { return v.Answering && v.Ports == 1 && v.Missing == 0 && v.Error == "" })
	s.Vsctl("del-port", name)
	vswitch("the port that was removed by hand", func(v pkgvswitch.Status) bool { return v.Ports == 1 && v.Recreated == 2 && v.Error == "" })
	if list := s.Vsctl("list-ports", "br0"); strings.TrimSpace(list) != name {
		t.Errorf("the switch has the ports %q, want %s", list, name)
	}
	n.metrics(`jackfield_vswitch_up{vswitch="ovs0"} 1`, `jackfield_vswitch_ports{vswitch="ovs0"} 1`, `jackfield_vswitch_ports_missing{vswitch="ovs0"} 0`,
		`jackfield_vswitch_ports_recreated_total{vswitch="ovs0"} 2`, `jackfield_vswitch_ports_removed_total{vswitch="ovs0"} 0`, `jackfield_vswitch_errors_total{vswitch="ovs0"} 0`)
	if text := n.log.String(); strings.Count(text, "had lost ports of running pods") != 2 || !strings.Contains(text, name+" (dpdk-1/p)") {
		t.Errorf("the log does not have the ports that were re-created:\n%s", text)
	}
	check(t, os.MkdirAll(n.path("/etc/jackfield"), 0o755))
	n.write("/etc/jackfield/config.yaml", vswitchYAML)
	if _, text := run("doctor"); !strings.Contains(text, "answers and has 1 port of running pods") {
		t.Errorf("doctor does not report the switch:\n%s", text)
	}
	if _, text := run("status"); !strings.Contains(text, "1 port of running pods, 2 re-created") {
		t.Errorf("status does not report the switch:\n%s", text)
	}

	// A database that hangs delays no pod.
	s.SignalDatabase(syscall.SIGSTOP)
	n.mustCreate(n.pod("dpdk-1", nil))
	s.SignalDatabase(syscall.SIGCONT)

	s.KillDatabase()
	vswitch("that the switch is gone", func(v pkgvswitch.Status) bool { return !v.Answering && v.Error != "" })
	n.metrics(`jackfield_vswitch_up{vswitch="ovs0"} 0`)
	if _, text := run("doctor"); !strings.Contains(text, "is unreachable") || !strings.Contains(text, "vswitches.ovs0.endpoint") {
		t.Errorf("doctor does not report that the switch is gone:\n%s", text)
	}
	if _, text := run("status"); !strings.Contains(text, "UNREACHABLE at /run/ovs/db.sock") {
		t.Errorf("status does not report that the switch is gone:\n%s", text)
	}
	s.WipeDatabase()
	s.StartDatabase()
	s.Configure(true)
	s.AddBridge("br0")
	vswitch("the port after the loss of the database", func(v pkgvswitch.Status) bool { return v.Answering && v.Ports == 1 && v.Missing == 0 })

	// The port of a pod that ended is not created again.
	check(t, n.runtime.RemovePodSandbox(context.Background(), pod))
	vswitch("no port of a living pod", func(v pkgvswitch.Status) bool { return v.Ports == 0 && v.Missing == 0 })
}
