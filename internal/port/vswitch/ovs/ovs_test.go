// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

var (
	testOwner = vswitch.Owner{ContainerID: "c1", Interface: "net1", Network: "fast", Namespace: "tenants", Pod: "web-0"}
	testPort  = vswitch.Port{
		Name: vswitch.PortName(testOwner), Owner: testOwner, Type: vswitch.VhostUser, Socket: "/s/app.sock", Bridge: "br0",
		MAC: "02:00:00:00:00:01", Addresses: []string{"10.0.0.2/24"}, MTU: 1500, VLAN: 7, Queues: 2, Rate: 1_000_000,
	}
)

// serve accepts connections on a socket and calls handle for each, until the test ends.
func serve(t *testing.T, handle func(net.Conn)) *Driver {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovs") // the test's own directory may have too long a name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	endpoint := filepath.Join(dir, "db.sock")
	listener, err := net.Listen("unix", endpoint)
	if err != nil {
		t.Fatal(err)
	}
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
	return &Driver{Switch: vswitch.Switch{Name: "ovs0", Endpoint: endpoint}}
}

func TestValuesKeepTheirFormInJSON(t *testing.T) {
	for _, tc := range []struct {
		value any
		want  string
	}{
		{uuid("u"), `["uuid","u"]`},
		{newRow("r"), `["named-uuid","r"]`},
		{set[int](nil), `["set",[]]`},
		{set[int]{1, 2}, `["set",[1,2]]`},
		{set[uuid]{"a", "b"}, `["set",[["uuid","a"],["uuid","b"]]]`},
		{stringMap{}, `["map",[]]`},
		{stringMap{"b": "2", "a": "1"}, `["map",[["a","1"],["b","2"]]]`},
	} {
		if got, err := json.Marshal(tc.value); err != nil || string(got) != tc.want {
			t.Errorf("%#v is %s, %v; want %s", tc.value, got, err, tc.want)
		}
	}
	row, err := parseRow[interfaceRow]([]byte(`[{"_uuid":["uuid","u"],"mtu_request":1500,"ofport":["set",[]],"options":["map",[["k","v"]]],"error":"broken"}]`))
	want := &interfaceRow{UUID: "u", MTURequest: set[int]{1500}, Options: stringMap{"k": "v"}, Number: set[int]{}, Error: set[string]{"broken"}}
	if err != nil || !cmp.Equal(row, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, row))
	}
	for _, data := range []string{`{`, `{}`, `[1]`, `[{"_uuid":"u"}]`, `[{"_uuid":["set",[]]}]`, `[{"options":["map",[1]]}]`, `[{"options":["set",[]]}]`, `[{"mtu_request":"x"}]`} {
		if row, err := parseRow[interfaceRow]([]byte(data)); err == nil {
			t.Errorf("%s is read as %+v", data, row)
		}
	}
}

func TestRowsDescribeThePort(t *testing.T) {
	d := &Driver{Switch: vswitch.Switch{Name: "ovs0", Endpoint: "/run/ovs/db.sock"}}
	if got := d.portOf(desiredPort(testPort), desiredInterface(testPort), "br0", systemRow{}); !cmp.Equal(got, testPort) {
		t.Error(cmp.Diff(testPort, got))
	}
	p := vswitch.Port{Name: "jf0", Owner: vswitch.Owner{ContainerID: "c1", Interface: "net1"}, Type: vswitch.VhostUser, SwitchListens: true, Bridge: "br0"}
	got := d.portOf(desiredPort(p), desiredInterface(p), "br0", systemRow{OtherConfig: stringMap{"vhost-sock-dir": "vhost"}})
	if p.Socket = "/run/ovs/vhost/jf0"; !cmp.Equal(got, p) {
		t.Error(cmp.Diff(p, got))
	}
	if row := desiredInterface(vswitch.Port{Rate: 1}); row.Rate != 1 || row.Burst != 1 {
		t.Errorf("the smallest rate is %d kbit/s, with a burst of %d", row.Rate, row.Burst)
	}
}

func TestPlanLeavesSettingsOfOthersAlone(t *testing.T) {
	iface, port := desiredInterface(testPort), desiredPort(testPort)
	iface.UUID, port.UUID, port.Interfaces = "i", "p", set[uuid]{"i"}
	iface.ExternalIDs["ovn-installed"], iface.Options["tx-retries-max"] = "true", "0"
	s := &state{port: &port, iface: &iface, bridge: &bridgeRow{UUID: "b"}, bridges: []bridgeRow{{UUID: "a"}, {UUID: "b", Ports: set[uuid]{"p"}}}}
	if operations, creates := planChanges(s, testPort); operations != nil || creates {
		t.Errorf("a port that is as desired is changed: %v", operations)
	}
	changed := testPort
	changed.MAC = "02:00:00:00:00:02"
	operations, creates := planChanges(s, changed)
	if len(operations) != 3 || creates {
		t.Fatalf("found %v", operations)
	}
	for _, op := range operations[1:] { // the first one checks that the row is as it was read
		if text, _ := json.Marshal(op); strings.Contains(string(text), "ovn-installed") {
			t.Errorf("the key of another program is changed: %s", text)
		}
	}
}

func TestErrorOfAnOperationIsNamed(t *testing.T) {
	operations := []operation{{"op": "wait", "table": "Port"}, {"op": "insert", "table": "Port"}}
	for answer, want := range map[string]string{
		`[{"error":"timed out","details":"waited"},null]`:             "wait Port: timed out: waited",
		`[{},{"uuid":["uuid","u"]},{"error":"constraint violation"}]`: "commit: constraint violation",
		`[{}]`:      "the server answered 1 of 2 operations",
		`[{},null]`: "the server did not answer operation 1",
		`{}`:        "the server's answer has an unexpected form",
		``:          "the server's answer has an unexpected form",
	} {
		if _, err := parseResults(operations, []byte(answer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v, want %q", answer, err, want)
		}
	}
}

// A server that misbehaves is an error within the caller's time, and never a panic.
func TestMisbehavingServerIsErrorInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		handle func(net.Conn)
		want   string
	}{
		"hangs":           {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, "timed out"},
		"closes":          {func(net.Conn) {}, "the server closed the connection"},
		"dies in a value": {func(c net.Conn) { fmt.Fprint(c, `{"id":1,"result":[`) }, "the server closed the connection"},
		"sends garbage":   {func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 400\r\n\r\n"); _, _ = io.Copy(io.Discard, c) }, "invalid character"},
		"repeats itself": {func(c net.Conn) {
			for range 1 << 20 {
				if _, err := fmt.Fprint(c, `{"id":77,"result":[]}`); err != nil {
					return
				}
			}
		}, ""},
		"sends too much": {func(c net.Conn) {
			_, _ = io.WriteString(c, `{"result":"`)
			for range maxMessage>>16 + 16 {
				if _, err := io.WriteString(c, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
			_, _ = io.Copy(io.Discard, c)
		}, "more than 16777216 bytes"},
		"answers nothing": {func(c net.Conn) { fmt.Fprint(c, `{"id":1,"result":null,"error":null}`); _, _ = io.Copy(io.Discard, c) }, "answered 0 of"},
		"answers another": {func(c net.Conn) {
			fmt.Fprint(c, `{"id":1,"result":[{},{},{},{}],"error":null}`)
			_, _ = io.Copy(io.Discard, c)
		}, "unexpected form"},
		"refuses": {func(c net.Conn) {
			fmt.Fprint(c, `{"id":1,"result":null,"error":"unknown database"}`)
			_, _ = io.Copy(io.Discard, c)
		}, "unknown database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t, tc.handle)
			call := func(f func(context.Context) error) {
				t.Helper()
				patience := testkit.Hangs
				if tc.want == "timed out" || tc.want == "" {
					patience = time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if err := f(ctx); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("found %v, want %q", err, tc.want)
				}
			}
			call(func(ctx context.Context) error { _, err := d.Ensure(ctx, testPort); return err })
			call(func(ctx context.Context) error { _, err := d.List(ctx); return err })
			call(func(ctx context.Context) error { return d.Remove(ctx, testOwner) })
		})
	}
}

// The database may be emptied between two transactions of Ensure.
func TestDatabaseIsEmptiedMeanwhile(t *testing.T) {
	d := serve(t, func(c net.Conn) {
		decoder := json.NewDecoder(c)
		answers := []string{
			`{"rows":[]},{"rows":[]},{"rows":[{"_uuid":["uuid","b"],"name":"br0","datapath_type":"netdev"}]},{"rows":[{"dpdk_initialized":true}]}`,
			`{},{},{},{},{},{"rows":[]}`,
		}
		for i, answer := range answers {
			var m message
			if decoder.Decode(&m) != nil {
				return
			}
			fmt.Fprintf(c, `{"id":%d,"error":null,"result":[%s]}`, i+1, answer)
		}
	})
	_, err := d.Ensure(t.Context(), testPort)
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "the database is empty") || strings.Contains(err.Error(), "%!") {
		t.Errorf("found %v", err)
	}
}

// The reconciler reports an error again if its text has changed.
func TestErrorOfSilentSwitchIsAlwaysTheSame(t *testing.T) {
	texts := map[string]bool{}
	for _, left := range []time.Duration{59500 * time.Millisecond, 59700 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		defer cancel()
		c := newConnection(recordedConn{Reader: strings.NewReader(`{"id":1,"error":null,"result":[{"error":"timed out"},null,null]}`)})
		texts[fmt.Sprint(new(Driver).waitUsable(ctx, c, testPort, 7))] = true
	}
	if len(texts) != 1 {
		t.Errorf("found %v", texts)
	}
}

func TestMissingServerIsUnavailable(t *testing.T) {
	d := &Driver{Switch: vswitch.Switch{Name: "ovs0", Endpoint: filepath.Join(t.TempDir(), "db.sock")}}
	_, err := d.Ensure(t.Context(), testPort)
	var unavailable *vswitch.UnavailableError
	if !errdefs.IsUnavailable(err) || !errors.As(err, &unavailable) || !strings.Contains(err.Error(), `vswitch "ovs0" is unreachable on `+d.Socket()+": connect: no such file or directory") {
		t.Errorf("found %v", err)
	}
}

// A server asks for an echo at any time. Each connection begins with a change.
func TestWatchAnswersEchoAndReconnects(t *testing.T) {
	echoes := make(chan string, 100)
	d := serve(t, func(c net.Conn) {
		decoder := json.NewDecoder(c)
		for {
			var m message
			if decoder.Decode(&m) != nil {
				return
			}
			switch m.Method {
			case "monitor_cond":
				fmt.Fprint(c, `{"id":"echo","method":"echo","params":["x"]}`)
				fmt.Fprintf(c, `{"id":%s,"result":{},"error":null}{"id":null,"method":"update","params":["jackfield",{}]}`, m.ID)
			case "":
				echoes <- string(m.ID) + string(m.Result)
				return
			}
		}
	})
	var changes atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Watch(ctx, func() { changes.Add(1) }) }()
	for range 2 {
		if got := <-echoes; got != `"echo"["x"]` {
			t.Errorf("found echo %s", got)
		}
	}
	if !testkit.Until(func() bool { return changes.Load() >= 3 }) {
		t.Fatalf("%d changes reported", changes.Load())
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("found %v", err)
	}
}

// recordedConn reads what a server sent, and drops what is written to it.
type recordedConn struct {
	net.Conn
	io.Reader
}

func (r recordedConn) Read(p []byte) (int, error) { return r.Reader.Read(p) }

func (r recordedConn) Write(p []byte) (int, error) { return len(p), nil }

// Whatever the server answers, the result is rows or an error.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`[{"rows":[{"_uuid":["uuid","u"],"name":"jf0","tag":7,"interfaces":["uuid","i"],"external_ids":["map",[["jackfield:managed","true"],["jackfield:owner","c/net1"]]]}]},` +
			`{"rows":[{"_uuid":["uuid","i"],"name":"jf0","type":"dpdkvhostuser","options":["map",[]],"mtu_request":["set",[]],"ofport":1,"error":["set",[]]}]},` +
			`{"rows":[{"name":"br0","ports":["set",[["uuid","p"],["uuid","u"]]]}]},{"rows":[{"other_config":["map",[]],"dpdk_initialized":true,"iface_types":["set",["x"]]}]}]`,
		`[{"error":"timed out","details":"x"},null,null,null]`, `[{},{},{},{}]`, `[null]`, `null`, `[[]]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		d := &Driver{Switch: vswitch.Switch{Name: "ovs0"}}
		ports, err := d.listPorts(newConnection(recordedConn{Reader: strings.NewReader(fmt.Sprintf(`{"id":1,"error":null,"result":%s}`, answer))}))
		if (ports == nil) == (err == nil) {
			t.Fatalf("both or neither of %+v, %v", ports, err)
		}
		for _, p := range ports {
			if _, ok := ownerOf(externalIDs(p)); !ok {
				t.Errorf("a port without owner: %+v", p)
			}
		}
	})
}
