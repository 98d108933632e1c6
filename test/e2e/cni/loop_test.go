// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
)

const (
	socketDir  = "/run/jackfield/sockets"
	stateDir   = "/run/jackfield/cni"
	devinfoDir = "/run/k8s.cni.cncf.io/devinfo/cni"
	ipamDir    = "/run/cni-ipam"

	// The socket directory is a socket root by default.
	nriConfig = `
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow: {sockets: ["/var/run/jackfield/sockets/**"]}
`
	hostLocal = `"ipam": {"type": "host-local", "dataDir": "` + ipamDir + `", "ranges": [[{"subnet": "10.89.0.0/16"}]]}`
)

// networks configure the plugin after another one, and as the first plugin.
var networks = []struct {
	name, conf string
	// host is testpmd's device, in which %s is the socket.
	host string
	// first means that the plugin is the first of the network, and that its interface exists only in user
	// space.
	first bool
}{
	{
		name: "bridge, then vhost-user that the application creates",
		conf: `{"cniVersion": "1.0.0", "name": "fast", "plugins": [
			{"type": "bridge", "bridge": "jf0", "isGateway": true, ` + hostLocal + `},
			{"type": "jackfield-cni", "device": {"type": "vhost-user", "mode": "server"}}]}`,
		host: "--vdev=net_vhost0,client=1,iface=%s",
	},
	{
		name: "memif master first, with host-local",
		conf: `{"cniVersion": "1.0.0", "name": "fast", "plugins": [
			{"type": "jackfield-cni", "device": {"type": "memif", "role": "master"}, ` + hostLocal + `}]}`,
		host:  "--vdev=net_memif0,role=client,socket-abstract=no,socket=%s",
		first: true,
	},
	{
		name: "vhost-user that the host creates first, with host-local",
		conf: `{"cniVersion": "0.4.0", "name": "fast", "plugins": [
			{"type": "jackfield-cni", "device": {"type": "vhost-user", "mode": "client"}, ` + hostLocal + `}]}`,
		host:  "--vdev=net_vhost0,iface=%s",
		first: true,
	},
}

// created reads the device-info that the CNI plugin wrote for the pod.
func created(t *testing.T, pod *e2e.Pod) (info *deviceinfo.Info, socket string) {
	t.Helper()
	entries, err := deviceinfo.CNIDir{Dir: devinfoDir}.ReadSandbox(pod.ID)
	if err != nil || len(entries) != 1 || entries[0].Err != nil {
		t.Fatalf("the pod's device-info is %+v, %v", entries, err)
	}
	if want := "dpdk-1-fast"; entries[0].Network != want || entries[0].IfName != "eth0" {
		t.Errorf("the file is for %q, %q; want %q, eth0", entries[0].Network, entries[0].IfName, want)
	}
	info = entries[0].Info
	if info.Type == deviceinfo.TypeMemif {
		return info, info.Memif.Path
	}
	return info, info.VhostUser.Path
}

// address returns the pod's address, as the runtime reports it.
func address(t *testing.T, pod *e2e.Pod) string {
	t.Helper()
	status, err := pod.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if ip := status.GetNetwork().GetIp(); strings.HasPrefix(ip, "10.89.") {
		return ip
	}
	t.Fatalf("the pod's network is %v, want an address of host-local's", status.GetNetwork())
	return ""
}

func TestNetworkServesPodFromADDToDEL(t *testing.T) {
	for _, network := range networks {
		t.Run(network.name, func(t *testing.T) {
			e2e.EachFresh(t, node.Options{CNI: network.conf}, func(t *testing.T, h *e2e.H) {
				tree := dpdk.Lay(t)
				t.Cleanup(func() { cleanUp(t) })
				h.StartPlugin(node.PluginOptions{Config: nriConfig})
				pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1"})
				ip := address(t, pod)
				info, socket := created(t, pod)
				if st, err := os.Stat(filepath.Dir(socket)); err != nil || !st.IsDir() || !strings.HasPrefix(socket, "/var/run/jackfield/sockets/") {
					t.Fatalf("the socket's directory, of %q: %v", socket, err)
				}
				hostFirst := info.VhostUser != nil && info.VhostUser.HostCreates()
				options := dpdk.Options{Devices: []string{"--no-pci", fmt.Sprintf(network.host, socket)}}
				var host *dpdk.Testpmd
				if hostFirst {
					host = tree.Start(t, options)
				}
				ctr := pod.Run(node.ContainerOptions{Mounts: tree.Mounts(), Command: once(t, "--no-pci $JACKFIELD_ETH0_EAL")})
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("the container printed:\n%s", node.Tail(ctr.Logs(), 60))
					}
				})
				checkView(t, ctr, ip, network.first)
				if links := ctr.Output("ls", "/sys/class/net"); strings.Contains(links, "eth0") == network.first {
					t.Errorf("the pod's interfaces are %q", strings.Fields(links))
				}
				ctr.Output("touch", "/tmp/go")
				if !hostFirst {
					h.Eventually(func() error { _, err := os.Lstat(socket); return err })
					host = tree.Start(t, options)
				}
				host.Connected(1)
				outside := host.Exchange(1, 500*time.Millisecond)[0]
				inside := dpdk.Finish(t, h, ctr)[0]
				t.Logf("%s, DPDK %s: host %v; container %v", h.Generation(), tree.Version, outside, inside)
				if outside.RX == 0 || outside.TX == 0 || inside.RX == 0 || inside.TX == 0 {
					t.Error("packets went one way at most")
				}
				host.Stop()
				pod.Remove()
				nothingLeft(t, h)
			})
		})
	}
}

// once is the command of a container that runs testpmd once the test creates its start file.
func once(t *testing.T, devices string) []string {
	t.Helper()
	_, cpu, err := dpdk.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	args := append(append(append(dpdk.Generic("app", cpu), "--"), dpdk.Forward()...), dpdk.Unattended()...)
	return []string{"sh", "-c", "until test -e /tmp/go; do sleep 0.02; done; exec /usr/bin/dpdk-testpmd " + devices + " " + strings.Join(args, " ")}
}

// checkView checks the interface's address in the container's devices.json. After bridge it is the address of
// the kernel interface.
func checkView(t *testing.T, ctr *e2e.Container, ip string, first bool) {
	t.Helper()
	var list []struct {
		Name, Interface string
		IPs             []string
	}
	if err := json.Unmarshal([]byte(ctr.Output("sh", "-c", "cat $JACKFIELD_DEVICES_FILE")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Name != "dpdk-1/fast" || list[0].Interface != "eth0" || slices.Contains(list[0].IPs, ip+"/16") != first {
		t.Errorf("devices.json has %+v, the pod's address is %s", list, ip)
	}
}

// nothingLeft checks that everything that the plugin created is removed.
func nothingLeft(t *testing.T, h *e2e.H) {
	t.Helper()
	h.Eventually(func() error {
		for _, dir := range []string{socketDir, stateDir, devinfoDir} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.Name() != ".jackfield.lock" {
					return fmt.Errorf("%s has %q when the pod is gone", dir, e.Name())
				}
			}
		}
		return nil
	})
	leases, err := filepath.Glob(ipamDir + "/fast/10.*")
	if err != nil || len(leases) > 0 {
		t.Errorf("host-local has leases: %q, %v", leases, err)
	}
}

func cleanUp(t *testing.T) {
	for _, dir := range []string{"/run/k8s.cni.cncf.io", ipamDir} {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	}
}
