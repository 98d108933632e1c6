// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/kubelet"
)

// Shell starts the machine with a pod that has a VF, and runs a shell in it. It returns the exit status.
func Shell() int {
	var err error
	code := 0
	if jail.Inside() {
		err = shellInside(context.Background())
	} else {
		code, err = shellOutside()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		return 1
	}
	return code
}

func shellOutside() (int, error) {
	if err := Impossible(); err != nil {
		return 1, fmt.Errorf("cannot run the machine here: %w", err)
	}
	ctx, stop := interruptible()
	defer stop()
	m, programs, env, err := prepareSession(ctx)
	if err != nil {
		return 1, err
	}
	if programs["shell"], err = os.Executable(); err != nil {
		return 1, err
	}
	if size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		env += fmt.Sprintf("export LINES=%d COLUMNS=%d\n", size.Row, size.Col)
	}
	script := env + "export TERM=" + quote(os.Getenv("TERM")) + "\nexec </dev/hvc0 >/dev/hvc0 2>&1\nsetsid -c /share/bin/shell\n"
	code, err := m.run(ctx, session{Programs: programs, Script: script, Console: true})
	if err == nil {
		fmt.Println("The machine is gone.")
	}
	return code, err
}

// shellConfig is Jackfield's configuration in the machine of the shell.
const shellConfig = `kubelet: {required: true}
policy:
  rules:
    - name: telco-vfs
      for: {namespaces: [telco]}
      allow: {devices: ["/dev/vfio/*", "/dev/vfio/devices/*", "/dev/iommu"]}
`

//go:embed shell.rc
var shellRC string

// resource is the resource of the machine's VFs.
const resource = "example.com/vfio"

// shellInside sets up the machine and runs the shell.
func shellInside(ctx context.Context) error {
	fmt.Println("creating VFs, starting containerd, Jackfield and a pod")
	if err := errors.Join(setUp(), bind(vf0, "vfio-pci"), os.MkdirAll("/etc/jackfield", 0o755),
		os.WriteFile("/etc/jackfield/config.yaml", []byte(shellConfig), 0o600)); err != nil {
		return err
	}
	k, err := kubelet.StartUnder("")
	if err != nil {
		return err
	}
	k.SetPods(kubelet.Pod("telco", "fwd", kubelet.Container("app", kubelet.Device(resource, vf0))))
	kit, err := node.KitFromEnv()
	if err != nil {
		return err
	}
	n, err := node.Start(ctx, kit, node.Options{Generation: node.V24})
	if err != nil {
		return err
	}
	if _, err := n.StartPlugin(ctx, node.PluginOptions{Config: shellConfig}); err != nil {
		return err
	}
	pod, err := n.RunPod(ctx, node.PodOptions{Name: "fwd", Namespace: "telco"})
	if err != nil {
		return err
	}
	if err := writeDeviceInfo("telco", pod.ID, "net1", pciInfo(vf0)); err != nil {
		return err
	}
	ctr, err := pod.Create(ctx, node.ContainerOptions{Name: "app", Mounts: systemMounts()})
	if err != nil {
		return err
	}
	if err := ctr.Start(ctx); err != nil {
		return err
	}
	if err := os.WriteFile("/root/.bashrc", []byte(shellRC), 0o644); err != nil {
		return err
	}
	cmd := exec.Command("/bin/bash")
	cmd.Dir = "/root"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "HOME=/root", "CONTAINERD_ADDRESS="+n.Socket(), "CONTAINERD_NAMESPACE=k8s.io", "CONTAINER="+ctr.ID)
	cmd.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Setpgid: true}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// writeDeviceInfo writes the file that Multus writes for an attachment of a sandbox.
func writeDeviceInfo(namespace, sandbox, iface, info string) error {
	const dir = "/run/k8s.cni.cncf.io/devinfo/cni"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("%s/%s-net-%s_%s", dir, namespace, sandbox, iface), []byte(info), 0o644)
}

// pciInfo returns the device-info of a function.
func pciInfo(address string) string {
	return `{"type":"pci","version":"1.1.0","pci":{"pci-address":"` + address + `"}}`
}

// systemMounts make the machine's programs available in a container: DPDK, the tools of verbs, and those of /share/bin.
func systemMounts() []*cri.Mount {
	var mounts []*cri.Mount
	for to, from := range map[string]string{"/usr": "/usr", "/lib": "/usr/lib", "/lib64": "/usr/lib64", "/share/bin": "/share/bin",
		"/etc/libibverbs.d": "/etc/libibverbs.d"} {
		mounts = append(mounts, &cri.Mount{HostPath: from, ContainerPath: to, Readonly: true})
	}
	return append(mounts, &cri.Mount{HostPath: "/dev/hugepages", ContainerPath: "/dev/hugepages"})
}
