// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/reconcile"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	driver "github.com/jackfield/jackfield/internal/port/vswitch/ovs"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/ovs"
)

func ovsPort(s *ovs.Switch, container string) vswitch.Port {
	owner := vswitch.Owner{ContainerID: container, Interface: "net1", Network: "fast", Namespace: "tenants", Pod: container}
	return vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, Socket: s.Dir + "/" + container + ".sock", Bridge: "br0", MTU: 1500, VLAN: 7}
}

// ownTime creates a port with one prepared transaction and returns the time that Open vSwitch takes until the port
// is usable.
func ownTime(b *testing.B, s *ovs.Switch, p vswitch.Port) time.Duration {
	b.Helper()
	conn, err := net.Dial("unix", s.Endpoint())
	testkit.Must(b, err)
	defer conn.Close()
	answers := json.NewDecoder(conn)
	transact := func(format string, args ...any) []struct {
		Rows []struct {
			NextCfg int64 `json:"next_cfg"`
			Number  int   `json:"ofport"`
		}
	} {
		_, err := fmt.Fprintf(conn, `{"method":"transact","id":1,"params":["Open_vSwitch",`+format+`]}`, args...)
		testkit.Must(b, err)
		var answer struct {
			Result []struct {
				Rows []struct {
					NextCfg int64 `json:"next_cfg"`
					Number  int   `json:"ofport"`
				}
			}
		}
		testkit.Must(b, answers.Decode(&answer))
		return answer.Result
	}
	began := time.Now()
	result := transact(`{"op":"insert","table":"Interface","uuid-name":"i","row":{"name":%q,"type":"dpdkvhostuserclient","mtu_request":%d,"options":["map",[["vhost-server-path",%q]]]}},`+
		`{"op":"insert","table":"Port","uuid-name":"p","row":{"name":%q,"tag":%d,"interfaces":["named-uuid","i"]}},`+
		`{"op":"mutate","table":"Bridge","where":[["name","==",%q]],"mutations":[["ports","insert",["named-uuid","p"]]]},`+
		`{"op":"mutate","table":"Open_vSwitch","where":[],"mutations":[["next_cfg","+=",1]]},{"op":"select","table":"Open_vSwitch","where":[],"columns":["next_cfg"]}`,
		p.Name, p.MTU, p.Socket, p.Name, p.VLAN, p.Bridge)
	result = transact(`{"op":"wait","table":"Open_vSwitch","timeout":60000,"where":[["cur_cfg",">=",%d]],"columns":["cur_cfg"],"until":"!=","rows":[]},`+
		`{"op":"select","table":"Interface","where":[["name","==",%q]],"columns":["ofport"]}`, result[4].Rows[0].NextCfg, p.Name)
	took := time.Since(began)
	if result[1].Rows[0].Number < 1 {
		b.Fatal("the port is not usable")
	}
	return took
}

// BenchmarkPortEnsure measures the driver's Ensure of a new port of Open vSwitch, beside the time that Open
// vSwitch takes for a prepared transaction, and beside ovs-vsctl, which other CNI plugins run. A hundred ports
// exist already. The three take turns.
func BenchmarkPortEnsure(b *testing.B) {
	s := ovs.Start(b)
	d := &driver.Driver{Switch: vswitch.Switch{Name: "ovs0", Endpoint: s.Endpoint()}}
	for i := range 100 {
		_, err := d.Ensure(b.Context(), ovsPort(s, fmt.Sprint("old", i)))
		testkit.Must(b, err)
	}
	var ours, own, vsctl []time.Duration
	for i := 0; b.Loop(); i++ {
		p := ovsPort(s, fmt.Sprint("new", i))
		began := time.Now()
		_, err := d.Ensure(b.Context(), p)
		testkit.Must(b, err)
		ours = append(ours, time.Since(began))
		s.Vsctl("del-port", p.Name)
		own = append(own, ownTime(b, s, p))
		s.Vsctl("del-port", p.Name)
		cmd := s.VsctlCommand("add-port", "br0", p.Name, fmt.Sprint("tag=", p.VLAN), "--", "set", "interface", p.Name, "type=dpdkvhostuserclient",
			"options:vhost-server-path="+p.Socket, fmt.Sprint("mtu_request=", p.MTU))
		began = time.Now()
		out, err := cmd.CombinedOutput()
		vsctl = append(vsctl, time.Since(began))
		if err != nil {
			b.Fatalf("ovs-vsctl: %v: %s", err, out)
		}
		s.Vsctl("del-port", p.Name)
	}
	reportPair(b, ours, own, "ms", "own-ms", time.Millisecond)
	b.ReportMetric(quantile(vsctl, 50)/1e6, "vsctl-ms")
	b.ReportMetric(quantile(ours, 50)/quantile(vsctl, 50), "x/vsctl")
}

// BenchmarkPortAdd measures ADD of jackfield-cni, from fork to exit, which creates a port of Open vSwitch, beside the
// time that Open vSwitch takes for a prepared transaction. A hundred ports exist already. The two take turns.
func BenchmarkPortAdd(b *testing.B) {
	if jail.Outside() {
		b.Skip("skipped: the benchmark has files in /etc and /run")
	}
	binary := build(b, "../cmd/jackfield-cni")
	s := ovs.Start(b)
	d := &driver.Driver{Switch: vswitch.Switch{Name: "ovs0", Endpoint: s.Endpoint()}}
	for i := range 100 {
		_, err := d.Ensure(b.Context(), ovsPort(s, fmt.Sprint("old", i)))
		testkit.Must(b, err)
	}
	testkit.Must(b, os.MkdirAll("/etc/jackfield", 0o755))
	testkit.Must(b, os.WriteFile(config.DefaultPath, fmt.Appendf(nil, `
vswitches: [{name: ovs0, type: ovs, endpoint: %s, bridges: [br0]}]
policy: {rules: [{name: r, for: {namespaces: [tenants]}, allow: {ports: [{port: "ovs0/br0", vlans: [7]}]}}]}
`, s.Endpoint()), 0o644))
	b.Cleanup(func() { os.Remove(config.DefaultPath) })
	run := func(command, container string) time.Duration {
		cmd := exec.Command(binary)
		cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + container, "CNI_IFNAME=net1", "CNI_NETNS=/proc/self/ns/net", "CNI_NETNS_OVERRIDE=1",
			"CNI_PATH=/nowhere", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=tenants;K8S_POD_NAME=" + container}
		cmd.Stdin = strings.NewReader(`{"cniVersion": "1.1.0", "name": "fast", "type": "jackfield-cni", "vswitch": "ovs0", "bridge": "br0", "vlan": 7, "mtu": 1500,
			"device": {"type": "vhost-user", "mode": "server"}}`)
		began := time.Now()
		out, err := cmd.Output()
		took := time.Since(began)
		if err != nil {
			b.Fatalf("%s: %v: %s", command, err, out)
		}
		return took
	}
	var ours, own []time.Duration
	for i := 0; b.Loop(); i++ {
		p := ovsPort(s, fmt.Sprint("new", i))
		ours = append(ours, run("ADD", p.Owner.ContainerID))
		run("DEL", p.Owner.ContainerID)
		s.Vsctl("set", "Open_vSwitch", ".", fmt.Sprint("external_ids:settled=", i)) // DEL does not wait for ovs-vswitchd
		own = append(own, ownTime(b, s, p))
		s.Vsctl("del-port", p.Name)
	}
	reportPair(b, ours, own, "ms", "own-ms", time.Millisecond)
}

// startReconciler runs a reconciler for a number of living sandboxes and returns when their ports exist.
func startReconciler(b *testing.B, s *ovs.Switch, count int) *reconcile.Reconciler {
	b.Helper()
	host, err := hostfs.New(b.TempDir())
	testkit.Must(b, err)
	store, err := record.Open(host, record.DefaultDir)
	testkit.Must(b, err)
	defer store.Close()
	sandboxes := map[string]bool{}
	for i := range count {
		p := ovsPort(s, fmt.Sprint("c", i))
		sandboxes[p.Owner.ContainerID] = true
		testkit.Must(b, store.Create(&record.Record{
			Key:     record.Key{Network: "fast", ContainerID: p.Owner.ContainerID, Interface: "net1"},
			InfoDir: "/d", InfoFile: "f",
			Info:   &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version, VhostUser: &deviceinfo.VhostUser{Mode: "server", Path: p.Socket}},
			Switch: "ovs0", Port: &p,
		}))
	}
	r := reconcile.New(reconcile.Options{
		Switches: map[string]vswitch.Watcher{"ovs0": &driver.Driver{Switch: vswitch.Switch{Name: "ovs0", Endpoint: s.Endpoint()}}},
		Host:     host, StateDir: record.DefaultDir,
		Sandboxes: func() (map[string]bool, bool) { return sandboxes, true },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
	})
	for r.Status()["ovs0"].Ports < count {
		time.Sleep(time.Millisecond)
	}
	return r
}

// BenchmarkPortsLost measures the time from the restart of Open vSwitch with an empty database until all ports of
// living sandboxes are usable again. It begins when the bridge is added: the ports can be back before ovs-vsctl,
// which adds it, has ended. The peer is one call of ovs-vsctl that adds the same ports to another switch in the
// same state.
func BenchmarkPortsLost(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint("n=", n), func(b *testing.B) {
			s, other := ovs.Start(b), ovs.New(b)
			r := startReconciler(b, s, n)
			var add []string
			for i := range n {
				p := ovsPort(other, fmt.Sprint("c", i))
				add = append(add, "--", "add-port", "br0", p.Name, fmt.Sprint("tag=", p.VLAN), "--", "set", "interface", p.Name, "type=dpdkvhostuserclient",
					"options:vhost-server-path="+p.Socket, fmt.Sprint("mtu_request=", p.MTU))
			}
			var ours, peer []time.Duration
			for b.Loop() {
				before := r.Status()["ovs0"].Recreated
				began := restart(s)
				for r.Status()["ovs0"].Recreated < before+n {
					time.Sleep(time.Millisecond)
				}
				ours = append(ours, time.Since(began))
				s.KillSwitch()
				began = restart(other)
				other.Vsctl(add...)
				peer = append(peer, time.Since(began))
				other.KillSwitch()
			}
			reportPair(b, ours, peer, "ms", "vsctl-ms", time.Millisecond)
		})
	}
}

// restart starts a switch again with only bridge br0, and returns when it began to add the bridge.
func restart(s *ovs.Switch) (began time.Time) {
	s.KillSwitch()
	s.KillDatabase()
	s.WipeDatabase()
	s.StartDatabase()
	s.Configure(true)
	s.StartSwitch()
	began = time.Now()
	s.AddBridge("br0")
	return began
}

// BenchmarkPortWatchIdle measures the processor time per minute of watching a switch with 100 ports on
// which nothing happens.
func BenchmarkPortWatchIdle(b *testing.B) {
	s := ovs.Start(b)
	startReconciler(b, s, 100)
	time.Sleep(time.Second)
	var all []time.Duration
	for b.Loop() {
		before := testkit.CPU()
		time.Sleep(5 * time.Second)
		all = append(all, (testkit.CPU()-before)*time.Minute/(5*time.Second))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(all, 50)/1e6, "ms/min")
}
