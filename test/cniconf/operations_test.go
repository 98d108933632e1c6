// SPDX-License-Identifier: Apache-2.0

package cniconf_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const server = `"type": "jackfield-cni", "device": {"type": "vhost-user", "mode": "server"}`

// In each version, jackfield-cni as the first plugin passes ADD, CHECK and DEL, with addresses of host-local.
func TestAddCheckDelInEveryVersion(t *testing.T) {
	k := require(t)
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			r := newRuntime(t, k.Upstream)
			l := r.list(version, "{"+server+", "+r.hostLocal()+"}")
			rt := r.attachment("c1")
			result := r.add(l, rt)
			if len(result.Interfaces) != 1 || len(result.IPs) != 1 || len(result.Routes) != 1 {
				t.Fatalf("the result is %+v", result)
			}
			i, ip := result.Interfaces[0], result.IPs[0]
			if i.Name != "eth0" || i.Sandbox != rt.NetNS || *ip.Interface != 0 || !strings.HasPrefix(ip.Address.String(), "10.1.") || ip.Gateway.String() != "10.1.0.1" {
				t.Errorf("interface %+v, address %+v", i, ip)
			}
			entries, err := deviceinfo.CNIDir{}.ReadSandbox("c1")
			if err != nil || len(entries) != 1 || entries[0].Err != nil || entries[0].Network != "blue-dbnet" {
				t.Fatalf("device-info: %+v, %v", entries, err)
			}
			socket := entries[0].Info.VhostUser.Path
			if st, err := os.Stat(filepath.Dir(socket)); err != nil || !st.IsDir() || filepath.Dir(filepath.Dir(socket)) != socketDir {
				t.Errorf("socket %q: %v", socket, err)
			}
			if want := map[bool]string{true: socket}[version == "1.1.0"]; i.SocketPath != want {
				t.Errorf("socketPath is %q, want %q", i.SocketPath, want)
			}
			if !strings.HasPrefix(version, "0.3.") {
				testkit.Must(t, r.CheckNetworkList(r.ctx, l, rt))
			}
			// DEL must succeed without the namespace, and again without libcni's cached result.
			testkit.Must(t, unix.Unmount(rt.NetNS, unix.MNT_DETACH))
			testkit.Must(t, os.Remove(rt.NetNS))
			rt.NetNS = ""
			testkit.Must(t, r.DelNetworkList(r.ctx, l, rt))
			r.checkNothingLeft()
			testkit.Must(t, r.DelNetworkList(r.ctx, l, rt))
		})
	}
}

// A failed ADD leaves nothing, and the runtime's DEL after it succeeds.
func TestFailedAddLeavesNothing(t *testing.T) {
	k := require(t)
	r := newRuntime(t, k.Upstream)
	rt := r.attachment("c1")
	// bridge has created the interface already.
	bridged := r.list("1.1.0", `{"type": "bridge", "bridge": "`+r.bridge()+`", `+r.hostLocal()+`}`)
	r.add(bridged, rt)
	var e *types.Error
	_, err := r.AddNetworkList(r.ctx, r.list("1.1.0", "{"+server+", "+r.hostLocal()+"}"), rt)
	if !asError(err, &e) || e.Code != 100 || !strings.Contains(e.Msg, "eth0") {
		t.Errorf("ADD of an existing interface: %v", err)
	}
	testkit.Must(t, r.DelNetworkList(r.ctx, bridged, rt))
	r.checkNothingLeft()

	// DEL must succeed for a configuration with an unknown key.
	bad := r.list("1.1.0", "{"+server+`, "keyA": ["some more", "configuration"], `+r.hostLocal()+"}")
	_, err = r.AddNetworkList(r.ctx, bad, rt)
	if !asError(err, &e) || e.Code != types.ErrUnsupportedField || !strings.Contains(e.Msg, `"keyA": ["some more","configuration"]`) {
		t.Errorf("ADD with an unknown key: %v", err)
	}
	testkit.Must(t, r.DelNetworkList(r.ctx, bad, rt))
	r.checkNothingLeft()
}

func asError(err error, to **types.Error) bool {
	*to = &types.Error{}
	return errors.As(err, to)
}

// The example of the specification's appendix passes ADD, CHECK and DEL, with jackfield-cni between
// bridge and the other plugins.
func TestAppendixExample(t *testing.T) {
	k := require(t)
	// If Debian's portmap finds ip6tables, it expects IPv6 rules that it has not created.
	t.Setenv("PATH", k.Iptables+":/usr/bin:/bin")
	for version, dir := range map[string]string{"0.3.0": k.Debian, "0.3.1": k.Debian, "0.4.0": k.Debian, "1.0.0": k.Debian, "1.1.0": k.Upstream} {
		t.Run(version, func(t *testing.T) {
			r := newRuntime(t, dir)
			l := r.list(version,
				`{"type": "bridge", "bridge": "`+r.bridge()+`", "keyA": ["some more", "plugin specific", "configuration"], "isGateway": true, `+r.hostLocal()+`, "dns": {"nameservers": ["10.1.0.1"]}}`,
				`{`+server+`, "capabilities": {"mac": true, "CNIDeviceInfoFile": true}}`,
				`{"type": "tuning", "capabilities": {"mac": true}, "sysctl": {"net.core.somaxconn": "500"}}`,
				`{"type": "portmap", "capabilities": {"portMappings": true}}`)
			rt := r.attachment("c1")
			rt.Args = append(rt.Args, [2]string{"argA", "foo"})
			file, err := deviceinfo.CNIDir{}.Path("unique-name-" + rt.ContainerID + "_" + rt.IfName)
			testkit.Must(t, err)
			rt.CapabilityArgs = map[string]any{"mac": "00:11:22:33:44:66", "CNIDeviceInfoFile": file,
				"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
			result := r.add(l, rt)
			var names []string
			for _, i := range result.Interfaces {
				names = append(names, i.Name)
			}
			if len(names) != 3 || names[2] != "eth0" || result.Interfaces[2].Mac != "00:11:22:33:44:66" || len(result.IPs) != 1 || len(result.DNS.Nameservers) != 1 {
				t.Errorf("the result is %+v with interfaces %q", result, names)
			}
			info, err := deviceinfo.CNIDir{}.Read(filepath.Base(file))
			testkit.Must(t, err)
			if !strings.Contains(string(info.Extra["jackfield.dev/interface"]), "00:11:22:33:44:66") {
				t.Errorf("the device-info has the interface %s", info.Extra["jackfield.dev/interface"])
			}
			if !strings.HasPrefix(version, "0.3.") {
				testkit.Must(t, r.CheckNetworkList(r.ctx, l, rt))
			}
			testkit.Must(t, r.DelNetworkList(r.ctx, l, rt))
			r.checkNothingLeft()
			testkit.Must(t, r.DelNetworkList(r.ctx, l, rt))
		})
	}
}

// The result is prevResult, with every field.
func TestResultIsPrevResult(t *testing.T) {
	k := require(t)
	for version, dir := range map[string]string{"0.3.0": k.Debian, "0.3.1": k.Debian, "0.4.0": k.Debian, "1.0.0": k.Debian, "1.1.0": k.Upstream} {
		r := newRuntime(t, dir)
		bridge := `{"type": "bridge", "bridge": "` + r.bridge() + `", "isGateway": true, ` + r.hostLocal() + `}`
		rt := r.attachment("c1")
		before := r.add(r.list(version, bridge), rt)
		prev, err := before.GetAsVersion(version)
		testkit.Must(t, err)
		want, err := json.Marshal(prev)
		testkit.Must(t, err)
		out, e := r.execute("jackfield-cni", fmt.Sprintf(`{"cniVersion": %q, "name": "dbnet", %s, "prevResult": %s}`, version, server, want),
			"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS="+rt.NetNS)
		if e != nil {
			t.Fatal(e)
		}
		var got, expected any
		testkit.Must(t, json.Unmarshal([]byte(out), &got))
		testkit.Must(t, json.Unmarshal(want, &expected))
		if d := cmp.Diff(expected, got); d != "" {
			t.Errorf("%s: prevResult -, result +:\n%s", version, d)
		}
		testkit.Must(t, r.DelNetworkList(r.ctx, r.list(version, bridge, "{"+server+"}"), rt))
		r.checkNothingLeft()
	}
}

// Many containers can be attached at once, as the specification allows.
func TestConcurrentAttachments(t *testing.T) {
	k := require(t)
	r := newRuntime(t, k.Upstream)
	l := r.list("1.1.0", "{"+server+", "+r.hostLocal()+"}")
	var rts []*libcni.RuntimeConf
	for i := range 12 {
		rts = append(rts, r.attachment(fmt.Sprintf("c%d", i)))
	}
	sockets := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, rt := range rts {
		wg.Go(func() {
			for round := range 3 {
				result, err := r.AddNetworkList(r.ctx, l, rt)
				if err == nil {
					err = r.CheckNetworkList(r.ctx, l, rt)
				}
				mu.Lock()
				if round == 0 && err == nil {
					sockets[result.(*types100.Result).Interfaces[0].SocketPath] = true
				}
				mu.Unlock()
				if err == nil {
					err = r.DelNetworkList(r.ctx, l, rt)
				}
				if err != nil {
					t.Errorf("%s: %v", rt.ContainerID, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if len(sockets) != len(rts) {
		t.Errorf("%d containers had %d sockets", len(rts), len(sockets))
	}
	r.checkNothingLeft()
}

func TestLibcniRunsStatusAndGC(t *testing.T) {
	k := require(t)
	r := newRuntime(t, k.Upstream)
	l := r.list("1.1.0", "{"+server+", "+r.hostLocal()+"}")
	testkit.Must(t, r.GetStatusNetworkList(r.ctx, l))
	var keep []types.GCAttachment
	for _, id := range []string{"a", "b", "c"} {
		r.add(l, r.attachment(id))
	}
	keep = append(keep, types.GCAttachment{ContainerID: "b", IfName: "eth0"})
	// libcni's GC calls DEL for cached attachments. This runtime has an empty cache.
	uncached := newRuntime(t, k.Upstream)
	testkit.Must(t, uncached.GCNetworkList(r.ctx, l, &libcni.GCArgs{ValidAttachments: keep}))
	dirs, err := os.ReadDir(socketDir)
	testkit.Must(t, err)
	leases, err := filepath.Glob(r.ipam + "/dbnet/10.*")
	testkit.Must(t, err)
	if len(dirs) != 1 || !strings.HasPrefix(dirs[0].Name(), "b-") || len(leases) != 1 {
		t.Errorf("GC left %v and the leases %q", dirs, leases)
	}
	testkit.Must(t, uncached.GCNetworkList(r.ctx, l, &libcni.GCArgs{}))
	r.checkNothingLeft()

	testkit.Must(t, os.RemoveAll(socketDir))
	testkit.Must(t, os.WriteFile(socketDir, nil, 0o600))
	var e *types.Error
	if err := r.GetStatusNetworkList(r.ctx, l); !asError(err, &e) || e.Code != types.ErrPluginNotAvailable {
		t.Errorf("STATUS without a socket directory: %v", err)
	}
}

func TestLibcniReadsSupportedVersions(t *testing.T) {
	k := require(t)
	r := newRuntime(t, k.Upstream)
	info, err := r.GetVersionInfo(r.ctx, "jackfield-cni")
	testkit.Must(t, err)
	if got := info.SupportedVersions(); !slices.Equal(got, versions) {
		t.Errorf("the supported versions are %q, want %q", got, versions)
	}
	capabilities, err := r.ValidateNetworkList(r.ctx, r.list("1.1.0", `{`+server+`, "capabilities": {"mac": true}}`))
	if err != nil || len(capabilities) != 1 {
		t.Errorf("the network is not valid: %q, %v", capabilities, err)
	}
}

// A device plugin allocated two ports, and Multus copies their device-info before ADD. Each
// attachment keeps its port's socket. A configuration that names another port's socket fails.
func TestAllocatedPortsKeepTheirSockets(t *testing.T) {
	k := require(t)
	r := newRuntime(t, k.Upstream)
	const plugin = `"type": "jackfield-cni", "capabilities": {"CNIDeviceInfoFile": true}, "device": {"type": "vhost-user"`
	l := r.list("1.1.0", "{"+plugin+"}}")
	copyDeviceInfo := func(rt *libcni.RuntimeConf, ifName, port string) (file, socket string) {
		name, err := deviceinfo.CNIFileName("blue", "dbnet", rt.ContainerID, ifName)
		testkit.Must(t, err)
		file, socket = filepath.Join(devinfoDir, name), "/var/run/vsw/"+port+"/vhu.sock"
		testkit.Must(t, os.MkdirAll(devinfoDir, 0o755))
		testkit.Must(t, os.WriteFile(file, fmt.Appendf(nil, `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": %q}}`, socket), 0o644))
		rt.IfName, rt.CapabilityArgs = ifName, map[string]any{"CNIDeviceInfoFile": file}
		return file, socket
	}
	rt := r.attachment("c1")
	for ifName, port := range map[string]string{"net1": "port1", "net2": "port2"} {
		file, socket := copyDeviceInfo(rt, ifName, port)
		result := r.add(l, rt)
		if got := result.Interfaces[0].SocketPath; got != socket {
			t.Errorf("%s has the socket %q, want %q", ifName, got, socket)
		}
		testkit.Must(t, r.CheckNetworkList(r.ctx, l, rt))
		if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), socket) || !strings.Contains(string(data), "jackfield.dev/interface") {
			t.Errorf("the device-info of %s is %s, %v", ifName, data, err)
		}
		if dirs, err := os.ReadDir(socketDir); len(dirs) > 0 {
			t.Errorf("%s: a directory was created although the socket has one: %v, %v", ifName, dirs, err)
		}
		testkit.Must(t, r.DelNetworkList(r.ctx, l, rt))
		testkit.Must(t, os.Remove(file)) // as Multus does
	}
	file, socket := copyDeviceInfo(rt, "net1", "port1")
	before, err := os.ReadFile(file)
	testkit.Must(t, err)
	_, err = r.AddNetworkList(r.ctx, r.list("1.1.0", "{"+plugin+`, "mode": "client", "path": "/var/run/vsw/port0/vhu.sock"}, "socketDir": "/var/run/vsw"}`), rt)
	var e *types.Error
	if !asError(err, &e) || e.Code != types.ErrInvalidNetworkConfig {
		t.Fatalf("ADD with another port's path: %v", err)
	}
	for _, want := range []string{"device.path", "/var/run/vsw/port0/vhu.sock", socket, file} {
		if !strings.Contains(e.Msg+e.Details, want) {
			t.Errorf("the error does not name %q: %v", want, e)
		}
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the device plugin's device-info is %s, %v; want %s", after, err, before)
	}
	testkit.Must(t, r.DelNetworkList(r.ctx, l, rt))
	testkit.Must(t, os.Remove(file))
	r.checkNothingLeft()
}
