// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// onContainerd is the demonstration on a private containerd, in namespaces that remove everything
// when they end.
func onContainerd(ctx context.Context, w io.Writer) (err error) {
	kit, err := node.KitFromEnv()
	if err != nil {
		return err
	}
	started := time.Now()
	n, err := node.Start(ctx, kit, node.Options{Generation: node.V2})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, n.RemoveAllPods(ctx), n.Close(ctx))
	}()
	plugin, err := n.StartPlugin(ctx, node.PluginOptions{Config: configYAML})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plugin.Stop(time.Minute)) }()
	fmt.Fprintf(w, "A private containerd %s, unmodified, with the plugin jackfield-nri; both up in %d ms.\n",
		kit.Versions[node.V2], time.Since(started).Milliseconds())

	if err := write(cdiFile, fmt.Sprintf(cdiJSON, `"hostPath": "/run/acme/nic0"`)); err != nil {
		return err
	}
	if err := mknod("/run/acme/nic0"); err != nil {
		return err
	}
	ports := map[string]*vswitch.Server{}
	for path, kind := range map[string]vswitch.Kind{vhostSocket: vswitch.VhostUser, memifSocket: vswitch.Memif} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		s, err := vswitch.Listen(kind, path, greeting(path))
		if err != nil {
			return err
		}
		ports[path] = s
		defer s.Close()
	}
	scene(w)

	started = time.Now()
	pod, err := n.RunPod(ctx, node.PodOptions{Name: podName, Namespace: namespace, Annotations: annotations()})
	if err != nil {
		return err
	}
	// Multus and the CNI plugins write these files while the sandbox is created.
	err = errors.Join(write(devinfoFile("vhost-net", pod.ID, "net1"), vhostInfo), write(devinfoFile("memif-net", pod.ID, "net2"), memifInfo))
	if err != nil {
		return err
	}
	ctr, err := pod.Create(ctx, node.ContainerOptions{})
	if err != nil {
		return err
	}
	if err := ctr.Start(ctx); err != nil {
		return err
	}
	heading(w, "inside its container, %d ms later", time.Since(started).Milliseconds())
	for _, cmd := range []struct{ line, want string }{
		{"ls -l /dev/acme0", "1,   5"},
		{"head -c 4 /dev/acme0 | xxd -p", "00000000"},
		{"env | grep -E '^(ACME|JACKFIELD)' | sort", "JACKFIELD_NET2_SOCKET="},
		{"cat $JACKFIELD_DEVICES_FILE", `"interface": "net2"`},
		{"sockclient connect $JACKFIELD_NET1_SOCKET", greeting(vhostSocket)},
		{"sockclient connect /var/run/vsw/port2/memif.sock", greeting(memifSocket)},
	} {
		stdout, stderr, code, err := ctr.Exec(ctx, "sh", "-c", cmd.line)
		if err != nil {
			return err
		}
		indent(w, "$ "+cmd.line+"\n"+stdout+stderr)
		if code != 0 || !strings.Contains(stdout, cmd.want) {
			return fmt.Errorf("%q in the container: exit status %d, want %q in its output", cmd.line, code, cmd.want)
		}
	}
	if err := restarted(ctx, w, ctr, ports[vhostSocket]); err != nil {
		return err
	}
	return refused(ctx, w, n)
}

// restarted crashes and restarts the vswitch's port under the running container, and shows that the
// container reaches the new socket without a restart.
func restarted(ctx context.Context, w io.Writer, ctr *node.Container, port *vswitch.Server) error {
	const line = "sockclient connect $JACKFIELD_NET1_SOCKET"
	before, err := ctr.PID(ctx)
	if err != nil {
		return err
	}
	heading(w, "the vswitch crashes under the running container")
	if err := port.Crash(); err != nil {
		return err
	}
	stdout, stderr, code, err := ctr.Exec(ctx, "sh", "-c", line)
	if err != nil {
		return err
	}
	indent(w, "$ "+line+"\n"+stdout+stderr)
	if code == 0 {
		return errors.New("the crashed vswitch still answers")
	}
	heading(w, "it restarts and re-creates its socket")
	again, err := vswitch.Listen(vswitch.VhostUser, vhostSocket, greeting(vhostSocket)+", restarted")
	if err != nil {
		return err
	}
	defer again.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if stdout, stderr, code, err = ctr.Exec(ctx, "sh", "-c", line); err != nil {
			return err
		}
		if code == 0 {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("%q in the container, a minute after the vswitch came back: %s%s", line, stdout, stderr)
		}
	}
	indent(w, "$ "+line+"\n"+stdout)
	after, err := ctr.PID(ctx)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("the container's process was %d and is %d", before, after)
	}
	indent(w, "The container was not restarted. The plugin mounted the new socket where the old one was.")
	return nil
}

// refused shows the error of a pod that no rule covers.
func refused(ctx context.Context, w io.Writer, n *node.Node) error {
	heading(w, "the same device, requested in a namespace without a rule")
	pod, err := n.RunPod(ctx, node.PodOptions{Name: "stranger", Namespace: "web", Annotations: map[string]string{"devices.jackfield.dev": deviceRequest}})
	if err != nil {
		return err
	}
	_, err = pod.Create(ctx, node.ContainerOptions{})
	if err == nil {
		return errors.New("the container was created, and should have been refused")
	}
	_, message, _ := strings.Cut(err.Error(), "jackfield: ")
	indent(w, message)
	if message == "" {
		return fmt.Errorf("the container was refused by something else: %w", err)
	}
	return nil
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// mknod makes the device that stands for a NIC: 1:5, the zero device, so that
// reading it shows that the container's device cgroup lets it.
func mknod(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
		return fmt.Errorf("make device %q: %w", path, err)
	}
	return os.Chmod(path, 0o666)
}
