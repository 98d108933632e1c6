// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/kubelet"
)

// Shell starts the machine with a pod that has a VF, and runs a shell in it. If the standard input is no terminal, the
// shell runs the commands of the input. It returns the exit status, which is 0 for a shell on a terminal.
func Shell() int {
	start := shellOutside
	if jail.Inside() {
		start = func() (int, error) { return shellInside(context.Background()) }
	}
	code, err := start()
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
	console := onTerminal()
	if console {
		go func() {
			waitForHangup(0)
			stop()
		}()
	}
	m, programs, env, err := prepareSession(ctx)
	if err != nil {
		return 1, err
	}
	if programs["shell"], err = os.Executable(); err != nil {
		return 1, err
	}
	s := session{Programs: programs, Console: console}
	if s.Console {
		size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		if err != nil {
			return 1, err
		}
		s.Script = env + fmt.Sprintf("export LINES=%d COLUMNS=%d TERM=%s\n", size.Row, size.Col, quote(os.Getenv("TERM"))) +
			"exec </dev/hvc0 >/dev/hvc0 2>&1\nsetsid -c /share/bin/shell\n"
	} else {
		s.Script = env + "exec >\"$(echo /dev/vport*p1)\" 2>&1\n/share/bin/shell </share/input\n"
		if s.Input, err = io.ReadAll(os.Stdin); err != nil {
			return 1, fmt.Errorf("read the commands: %w", err)
		}
	}
	code, err := m.run(ctx, s)
	if err == nil {
		fmt.Println("The machine is gone.")
	}
	return code, err
}

// onTerminal reports whether the standard input is a terminal.
func onTerminal() bool {
	_, err := unix.IoctlGetTermios(0, unix.TCGETS)
	return err == nil
}

// waitForHangup waits until a terminal has gone. The kernel sends SIGHUP only to the process that leads the session. If
// that is make, it waits for its children and does not forward the signal.
func waitForHangup(fd int32) {
	for {
		fds := []unix.PollFd{{Fd: fd}}
		if _, err := unix.Poll(fds, -1); err == nil || !errors.Is(err, unix.EINTR) {
			return
		}
	}
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
func shellInside(ctx context.Context) (int, error) {
	socket, container, err := startPod(ctx)
	if err == nil {
		err = os.WriteFile("/root/.bashrc", []byte(shellRC), 0o644)
	}
	if err != nil {
		return 1, err
	}
	cmd := exec.Command("/bin/bash")
	cmd.Dir = "/root"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "HOME=/root", "BASH_ENV=/root/.bashrc", "CONTAINERD_ADDRESS="+socket,
		"CONTAINERD_NAMESPACE=k8s.io", "CONTAINER="+container)
	if onTerminal() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Setpgid: true}
	}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && !onTerminal():
		return exit.ExitCode(), nil
	case errors.As(err, &exit):
		return 0, nil
	}
	return 0, err
}

// startPod starts containerd with Jackfield, and a pod that has a VF. It returns the socket of containerd and the ID of
// the pod's container.
func startPod(ctx context.Context) (socket, container string, err error) {
	fmt.Println("creating VFs, starting containerd, Jackfield and a pod")
	if err := errors.Join(setUp(), bind(vf0, "vfio-pci"), os.MkdirAll("/etc/jackfield", 0o755),
		os.WriteFile("/etc/jackfield/config.yaml", []byte(shellConfig), 0o600)); err != nil {
		return "", "", err
	}
	k, err := kubelet.StartUnder("")
	if err != nil {
		return "", "", err
	}
	k.SetPods(kubelet.Pod("telco", "fwd", kubelet.Container("app", kubelet.Device(resource, vf0))))
	kit, err := node.KitFromEnv()
	if err != nil {
		return "", "", err
	}
	n, err := node.Start(ctx, kit, node.Options{Generation: node.V24})
	if err != nil {
		return "", "", err
	}
	if _, err := n.StartPlugin(ctx, node.PluginOptions{Config: shellConfig}); err != nil {
		return "", "", err
	}
	pod, err := n.RunPod(ctx, node.PodOptions{Name: "fwd", Namespace: "telco"})
	if err != nil {
		return "", "", err
	}
	if err := writeDeviceInfo("telco", pod.ID, "net1", pciInfo(vf0)); err != nil {
		return "", "", err
	}
	ctr, err := pod.Create(ctx, node.ContainerOptions{Name: "app", Mounts: systemMounts()})
	// On a busy host, the kubelet of this process can miss the second that Jackfield waits for its answer.
	for tries := 0; err != nil && strings.Contains(err.Error(), "no answer in time") && tries < 10; tries++ {
		ctr, err = pod.Create(ctx, node.ContainerOptions{Name: "app", Mounts: systemMounts()})
	}
	if err != nil {
		return "", "", err
	}
	if err := ctr.Start(ctx); err != nil {
		return "", "", err
	}
	return n.Socket(), ctr.ID, nil
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
