// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// ContainerdSocket is the path of containerd's socket on a node.
const ContainerdSocket = "/run/containerd/containerd.sock"

const (
	cniConfig = "/etc/cni/net.d/10-pods.conflist"
	cniBin    = "/opt/cni/bin"
)

// Node is a node of the cluster: a containerd and a kubelet with namespaces of their own.
type Node struct {
	Name    string
	address string
	// disk is the directory of the node's files that survive a reboot; "" is that of the jail.
	disk    string
	cluster *Cluster
	// process is the node's first one.
	process *node.Process
}

// AddNode starts a second node and waits until it is ready. The first node shares the network of the control
// plane; the second has its own, and nothing leads from pods of one node to those of the other.
func (c *Cluster) AddNode(ctx context.Context) (*Node, error) {
	n := &Node{Name: secondName, address: secondAddress, disk: filepath.Join(workDir, secondName), cluster: c}
	c.second = n
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("add node: %w", err), c.RemoveNode(ctx))
	}
	return n, nil
}

// RemoveNode ends the second node, and deletes it and its pods from the API server.
func (c *Cluster) RemoveNode(ctx context.Context) error {
	n := c.second
	c.second = nil
	n.powerOff()
	_, err := c.Kubectl(ctx, "delete", "--ignore-not-found", "node", n.Name)
	_, podsErr := c.Kubectl(ctx, "delete", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+n.Name, "--force")
	return errors.Join(err, podsErr, os.RemoveAll(n.disk), waitFor(ctx, "the node's interface and cgroups are removed", func(context.Context) error {
		if _, err := net.InterfaceByName(n.Name); err == nil {
			return errors.New("the interface exists")
		}
		return jail.RemoveCgroup(n.cgroup())
	}))
}

// start writes the node's files, switches it on, and waits until it is ready.
func (n *Node) start(ctx context.Context) error {
	if err := n.writeFiles(); err != nil {
		return err
	}
	if err := n.powerOn(ctx); err != nil {
		return err
	}
	if err := n.importImages(ctx); err != nil {
		return err
	}
	return n.waitReady(ctx)
}

// diskDirs are the directories of a node whose files survive a reboot.
func diskDirs() []string {
	return []string{"/etc/cdi", "/etc/cni", "/etc/jackfield", "/opt/cni", "/var/lib/cni", "/var/lib/containerd", "/var/lib/jackfield", "/var/lib/kubelet"}
}

// cgroup returns the parent of the cgroups of the node's pods.
func (n *Node) cgroup() string { return filepath.Join(jail.CgroupParent(), n.Name) }

// configFile and logFile return a file of the node's programs.
func (n *Node) configFile(name string) string { return filepath.Join(configDir, n.Name+"-"+name) }
func (n *Node) logFile(name string) string    { return logFile(n.Name + "-" + name) }

// writeFiles writes what is on the node's disk before it is switched on.
func (n *Node) writeFiles() error {
	// The jail has the directories, too: the second node mounts its own over them.
	for _, dir := range diskDirs() {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(n.disk+dir, 0o755)); err != nil {
			return fmt.Errorf("write node's files: %w", err)
		}
	}
	network := n.cluster.opts.Network
	if network == "" {
		network = PodNetwork()
	}
	for name, text := range map[string]string{
		n.configFile("containerd.toml"): n.cluster.containerdConfig(),
		n.configFile("kubelet.yaml"):    n.kubeletConfig(),
		n.disk + cniConfig:              network,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			return fmt.Errorf("write node's files: %w", err)
		}
	}
	if err := n.copyCNIPlugins(); err != nil {
		return err
	}
	return n.createCgroup()
}

// copyCNIPlugins links the distribution's CNI plugins, and copies Jackfield's, as a package does.
func (n *Node) copyCNIPlugins() error {
	kit, bin := n.cluster.kit.Node, n.disk+cniBin
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("install CNI plugins: %w", err)
	}
	entries, err := os.ReadDir(kit.CNI)
	if err != nil {
		return fmt.Errorf("install CNI plugins: %w", err)
	}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(kit.CNI, e.Name()), filepath.Join(bin, e.Name())); err != nil {
			return fmt.Errorf("install CNI plugins: %w", err)
		}
	}
	own, err := kit.Command("jackfield-cni")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(own)
	if err != nil {
		return fmt.Errorf("install CNI plugins: %w", err)
	}
	return os.WriteFile(filepath.Join(bin, "jackfield-cni"), data, 0o755)
}

// CopyCNIPlugin replaces the link to a CNI plugin of the first node by a copy, which a pod with the directory can run.
func (c *Cluster) CopyCNIPlugin(name string) error {
	data, err := os.ReadFile(filepath.Join(c.kit.Node.CNI, name))
	if err != nil {
		return fmt.Errorf("install CNI plugin: %w", err)
	}
	file := filepath.Join(c.node.disk+cniBin, name)
	return errors.Join(os.WriteFile(file+".new", data, 0o755), os.Rename(file+".new", file))
}

// createCgroup creates the node's cgroup in each hierarchy, which the jail removes at its end.
func (n *Node) createCgroup() error {
	mounts, err := jail.CgroupMounts()
	if err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	for _, m := range mounts {
		if err := os.MkdirAll(filepath.Join(m, n.cgroup()), 0o755); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
	}
	return nil
}

// testImages is the archive with the images of package node.
const testImages = configDir + "/images.tar"

func (c *Cluster) writeImages() error {
	f, err := os.Create(testImages)
	if err != nil {
		return fmt.Errorf("write images: %w", err)
	}
	return errors.Join(node.WriteImages(f, c.kit.Node), f.Close())
}

// PodNetwork returns the cluster's network: a pair of interfaces for each pod, and after it the given CNI
// plugins, as JSON objects.
func PodNetwork(chained ...string) string {
	ptp := `{"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]]}}`
	return fmt.Sprintf("{\"cniVersion\": \"1.0.0\", \"name\": \"pods\", \"plugins\": [\n  %s\n]}\n", strings.Join(append([]string{ptp}, chained...), ",\n  "))
}

// containerdConfig returns containerd's configuration. NRI has its default paths. The runtime is Debian's runc,
// because the one that is built from source has no seccomp.
func (c *Cluster) containerdConfig() string {
	return fmt.Sprintf(`version = 4
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.server.v1.grpc"]
  address = %q
[plugins."io.containerd.server.v1.ttrpc"]
  address = "%[1]s.ttrpc"
[debug]
  level = "info"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %[2]q
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = %[3]q
        SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%[4]q]
    conf_dir = %[5]q
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  plugin_request_timeout = "20s"
  plugin_registration_timeout = "20s"
%[6]s`, ContainerdSocket, node.PauseImage, c.kit.Node.Runc, cniBin, filepath.Dir(cniConfig), c.opts.requiredPlugins())
}

// kubeletConfig returns the kubelet's configuration. It differs from the defaults where the machine is not the
// kubelet's own (cgroups, limits, disk) and where the default waits long.
func (n *Node) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %[1]s/ca.crt}
authorization: {mode: AlwaysAllow}
tlsCertFile: %[1]s/%[4]s.crt
tlsPrivateKeyFile: %[1]s/%[4]s.key
containerRuntimeEndpoint: unix://%[2]s
cgroupDriver: cgroupfs
cgroupRoot: %[3]s
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
maxOpenFiles: 20000
maxPods: 250
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: ""
localStorageCapacityIsolation: false
imagePullCredentialsVerificationPolicy: NeverVerify
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
volumePluginDir: /var/lib/kubelet/plugins/volume
syncFrequency: 2s
nodeStatusUpdateFrequency: 2s
kubeAPIQPS: 200
kubeAPIBurst: 400
eventRecordQPS: 0
`, configDir, ContainerdSocket, n.cgroup(), n.Name)
}

// powerOn switches the node on, and waits until containerd answers.
func (n *Node) powerOn(ctx context.Context) error {
	kit := n.cluster.kit
	env := []string{"PATH=" + filepath.Dir(kit.containerd("ctr")) + ":/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", rareCollection}
	config, err := json.Marshal(initConfig{HostName: n.Name, Disk: n.disk, Services: []service{
		{Args: []string{kit.containerd("containerd"), "--config", n.configFile("containerd.toml")}, Env: env, Log: n.logFile("containerd")},
		{Args: []string{kit.Program("kubelet"), "--config", n.configFile("kubelet.yaml"), "--kubeconfig", filepath.Join(configDir, n.Name+".conf"),
			"--hostname-override", n.Name, "--node-ip", n.address, "--root-dir", "/var/lib/kubelet"}, Env: env, Log: n.logFile("kubelet")},
	}})
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = os.Args[0]
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), initEnv+"="+string(config))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	if n.address != nodeAddress {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	// The first process starts the services when its standard input ends: the network is ready then.
	networkReady, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	defer networkReady.Close()
	if n.process, err = node.StartProcess(cmd, n.logFile("init")); err != nil {
		return err
	}
	if n.address != nodeAddress {
		if err := connectNode(ctx, n.process.PID()); err != nil {
			return err
		}
	}
	if err := networkReady.Close(); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	if err := n.cluster.Wait(ctx, "containerd answers", func(ctx context.Context) error {
		return n.ctr(ctx, "version")
	}); err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, tailLog(n.logFile("init")), tailLog(n.logFile("containerd")))
	}
	return nil
}

// powerOff kills the node's first process, and with it all processes of the node.
func (n *Node) powerOff() {
	if n != nil && n.process != nil {
		n.process.Kill()
	}
}

// waitReady waits until the API server reports the node as ready.
func (n *Node) waitReady(ctx context.Context) error {
	if err := n.cluster.Wait(ctx, "the node is ready", func(ctx context.Context) error {
		_, err := n.cluster.Kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=1s", "node/"+n.Name)
		return err
	}); err != nil {
		return fmt.Errorf("%w\n%s", err, tailLog(n.logFile("kubelet")))
	}
	return nil
}

// importImages imports the images of package node and Jackfield's.
func (n *Node) importImages(ctx context.Context) error {
	for _, archive := range []string{testImages, n.cluster.kit.Image} {
		if err := n.ImportImages(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// ImportImages imports the images of an OCI layout, which is a tar archive.
func (n *Node) ImportImages(ctx context.Context, archive string) error {
	return n.ctr(ctx, "images", "import", "--local", "--snapshotter", "overlayfs", archive)
}

// ctr runs containerd's client in the namespace that CRI uses.
func (n *Node) ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, n.cluster.kit.containerd("ctr"), append([]string{"--address", n.HostPath(ContainerdSocket), "--namespace", "k8s.io"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// HostPath returns the path under which the caller sees a file of the first node. Files in /etc, /opt and
// /var/lib have the same path.
func (c *Cluster) HostPath(path string) string { return c.node.HostPath(path) }

// HostPath returns the path under which the caller sees a file of the node. Files in /etc, /opt and /var/lib are
// on the node's disk, and survive a reboot. Files in /run and /var/log do not.
func (n *Node) HostPath(path string) string {
	// The link /var/run is absolute, so that it would lead out of the node.
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
		path = "/run/" + rest
	}
	return filepath.Join(fmt.Sprintf("/proc/%d/root", n.process.PID()), path)
}
