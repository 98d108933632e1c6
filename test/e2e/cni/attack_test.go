// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

const (
	// volume is the emptyDir of the attacker's pod. The container has it as /data.
	volume = "/run/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v"
	// target stands for a directory of the host, such as /etc/profile.d.
	target = "/run/target"
	// pwned is created by the attacker's program.
	pwned = "/run/pwned"
)

// attacker is a tenant who can create networks and pods in one namespace, and has no grant.
type attacker struct {
	t     *testing.T
	h     *e2e.H
	pod   *e2e.Pod
	ctr   *e2e.Container
	tree  string // identity of target/tree, as a claim has it
	state string // of the host's files before the attack
}

// newAttacker starts the attacker's container as a user, and creates the files of the host that the attacks are after.
func newAttacker(t *testing.T, h *e2e.H, user int64) *attacker {
	h.StartPlugin(node.PluginOptions{Config: nriConfig})
	h.MkdirAll(volume)
	for _, dir := range []string{target + "/tree/below", claimsDir, devinfoDir} {
		h.MkdirAll(dir)
	}
	precious := []string{target + "/passwd", target + "/x.sh", target + "/tree/below/file", victimClaim, victimDamaged}
	for _, file := range precious {
		h.WriteFile(file, "precious")
	}
	h.WriteFile(victimInfo, `{"type": "vhost-user", "version": "1.1.0",
		"vhost-user": {"mode": "server", "path": "/run/vsw/victim/s"}}`)
	if err := os.Chmod(volume, 0o777); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(target+"/tree", &st); err != nil {
		t.Fatal(err)
	}
	id := hostfs.StatID(&st)
	a := &attacker{t: t, h: h, tree: fmt.Sprintf(`{"device":%d,"inode":%d}`, id.Device, id.Inode)}
	a.pod = h.RunPod(node.PodOptions{Namespace: "tenant"})
	a.ctr = a.pod.Run(node.ContainerOptions{User: user, Group: user, Mounts: []*cri.Mount{{HostPath: volume, ContainerPath: "/data"}}})
	a.state = a.hostFiles()
	return a
}

const (
	claimsDir = "/run/jackfield/claims"
	victimID  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

	// Files of another tenant's pod: a claim of a directory, a device-info file, and a damaged one.
	victimClaim   = claimsDir + "/%2Frun%2Fvsw%2Fvictim-" + victimID + "_net1"
	victimInfo    = devinfoDir + "/victim-fast-" + victimID + "_net1"
	victimDamaged = devinfoDir + "/damaged-fast-" + victimID + "_net1"
)

// sh runs a command in the attacker's container, in the volume.
func (a *attacker) sh(command string) { a.ctr.Output("sh", "-c", "cd /data && "+command) }

// write writes a file of the volume.
func (a *attacker) write(name, text string) {
	a.sh("mkdir -p " + filepath.Dir(name) + " && cat > '" + name + "' <<'EOT'\n" + text + "\nEOT")
}

// cni runs jackfield-cni for the attacker's network, as Multus does.
func (a *attacker) cni(command, keys string) (out string, err error) {
	program, err := a.h.Kit().Command("jackfield-cni")
	if err != nil {
		a.t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Stdin = strings.NewReader(`{"cniVersion": "1.0.0", "name": "fast", "type": "jackfield-cni",
		"device": {"type": "vhost-user", "mode": "server"}` + keys + `}`)
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + a.pod.ID, "CNI_IFNAME=net1", "CNI_PATH=/nowhere",
		fmt.Sprintf("CNI_NETNS=/proc/%d/ns/net", a.ctr.PID()), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=tenant;K8S_POD_NAME=p"}
	data, err := cmd.CombinedOutput()
	return string(data), err
}

// attack runs ADD, which must be refused, and DEL, which must succeed, and checks that both change nothing.
func (a *attacker) attack(keys string) {
	a.t.Helper()
	if out, err := a.cni("ADD", keys); err == nil || !strings.Contains(out, `"code": 7`) {
		a.t.Errorf("ADD with %s: %v, %s", keys, err, out)
	}
	a.checkHost("ADD", keys)
	if out, err := a.cni("DEL", keys); err != nil {
		a.t.Errorf("DEL with %s: %v, %s", keys, err, out)
	}
	a.checkHost("DEL", keys)
}

func (a *attacker) checkHost(command, keys string) {
	a.t.Helper()
	if now := a.hostFiles(); now != a.state {
		a.t.Errorf("%s with %s changed the host's files from\n%s\nto\n%s", command, keys, a.state, now)
	}
}

// hostFiles lists the files that the attacks are after with their content.
func (a *attacker) hostFiles() string {
	var b strings.Builder
	for _, root := range []string{target, claimsDir, pwned, "/run/jackfield/cni", devinfoDir, "/run/jackfield/sockets"} {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && d.Name() != ".jackfield.lock" {
				data, _ := os.ReadFile(path)
				fmt.Fprintf(&b, "%s %q\n", path, data)
			}
			return nil
		})
	}
	return b.String()
}

// record returns a forged record of the attacker's attachment.
func (a *attacker) record(keys string) string {
	return `{"network": "fast", "containerID": "` + a.pod.ID + `", "ifname": "net1",
		"deviceInfo": {"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "server", "path": "/run/x/y"}}, ` + keys + `}`
}

// The author of a network is not trusted with the host, as root in a container or as another user.
func TestAuthorOfNetworkOwnsNothingOfTheHost(t *testing.T) {
	for _, user := range []int64{0, 1000} {
		t.Run(fmt.Sprint("uid ", user), func(t *testing.T) {
			e2e.EachFresh(t, node.Options{}, func(t *testing.T, h *e2e.H) {
				a := newAttacker(t, h, user)
				name := "/fast@" + a.pod.ID + "@net1"
				port := vswitch.PortName(vswitch.Owner{ContainerID: a.pod.ID, Interface: "net1"})

				// A state directory in the volume: its record names a configuration whose grcli is the attacker's.
				a.write("grcli", "#!/bin/sh\nid > "+pwned)
				a.sh("chmod 755 grcli")
				a.write("config.yaml", "vswitches: [{name: g, type: grout, endpoint: /run/g.sock, grcli: "+volume+"/grcli, bridges: [br0]}]")
				a.write("program"+name, a.record(`"deviceInfoDir": "`+volume+`", "deviceInfoFile": "i-`+a.pod.ID+`_net1", "vswitch": "g",
					"configFile": "`+volume+`/config.yaml", "port": {"Name": "`+port+`", "Owner": {"ContainerID": "`+a.pod.ID+`", "Interface": "net1"}}`))
				a.sh("chmod 755 program")
				a.attack(`, "stateDir": "` + volume + `/program"`)
				a.attack(`, "vswitch": "g", "configFile": "` + volume + `/config.yaml"`)

				// A device-info directory that is a symlink: ADD would write below it, and DEL remove where it leads then.
				a.sh("ln -s " + target + " d")
				a.attack(`, "deviceInfoDir": "` + volume + `/d", "runtimeConfig": {"CNIDeviceInfoFile": "` + volume + `/d/new.sh"}`)
				a.attack(`, "deviceInfoDir": "` + volume + `/d", "runtimeConfig": {"CNIDeviceInfoFile": "` + volume + `/d/x.sh"}`)
				a.attack(`, "runtimeConfig": {"CNIDeviceInfoFile": "` + target + `/x.sh"}`)

				// The network chooses the runtime's file: the claim or the device-info file of another pod.
				for _, file := range []string{victimClaim, victimInfo, victimDamaged} {
					named := `, "runtimeConfig": {"CNIDeviceInfoFile": "` + file + `"}`
					a.attack(named)
					a.attack(`, "capabilities": {"CNIDeviceInfoFile": true}` + named)
					a.attack(`, "deviceInfoDir": "` + filepath.Dir(file) + `"` + named)
				}

				// A forged record that names a file and a tree of the host, with a claim of the tree.
				a.write("forged"+name, a.record(`"deviceInfoDir": "`+target+`", "deviceInfoFile": "passwd", "socketDir": "`+target+`",
					"directory": "tree", "claimsDir": "`+volume+`/claims", "claimed": "`+target+`/tree"`))
				holder := `{"sandbox": "` + a.pod.ID + `", "adapter": "cni", "stateDir": "` + volume + `/forged"}`
				a.write("claims/"+strings.ReplaceAll(target+"/tree", "/", "%2F"), `{"holders": [`+holder+`], "creator": `+holder+`, "created": `+a.tree+`}`)
				a.sh("chmod 700 forged claims")
				a.attack(`, "stateDir": "` + volume + `/forged", "claimsDir": "` + volume + `/claims"`)

				// The claim of another pod, and a socket directory that leads elsewhere.
				a.attack(`, "deviceInfoDir": "` + claimsDir + `"`)
				a.sh("ln -s " + target + " s")
				a.attack(`, "socketDir": "` + volume + `/s"`)
				a.attack(`, "socketDirSize": "1Gi"`)
			})
		})
	}
}
