// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/cluster"
)

// state is the directory of a running cluster on the machine. Its owner holds the lock of the file "pid".
type state struct {
	dir string
	pid *os.File
}

// claim creates the directory. It fails while another cluster has it.
func claim(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "pid"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("a cluster runs already; `make cluster-down` ends it: %w", errdefs.ErrAlreadyExists)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid()))); err != nil {
		f.Close()
		return nil, err
	}
	return &state{dir: dir, pid: f}, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// release removes what the cluster wrote, and then the lock.
func (s *state) release() {
	if err := removeFiles(s.dir); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	s.pid.Close()
}

func removeFiles(dir string) error {
	var errs []error
	for _, name := range []string{"bin", "cache", "kubeconfig", "values.yaml", dpdkArchive} {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// writeClients writes kubectl and helm, which run in the network namespace of a process of the cluster, because the API
// server can be reached only there; jackfield, which runs in the plugin's pod; and on-node, which runs a command in the
// mount namespace of the cluster, whose /etc is the node's.
func (s *state) writeClients(kit *cluster.Kit, pid int) error {
	bin := filepath.Join(s.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"kubectl", "helm"} {
		script := fmt.Sprintf(`#!/bin/sh
# %s in the network namespace of the cluster that "make cluster" runs.
export KUBECONFIG='%s/kubeconfig' KUBECACHEDIR='%[2]s/cache' HELM_CACHE_HOME='%[2]s/cache' HELM_CONFIG_HOME='%[2]s/cache' HELM_DATA_HOME='%[2]s/cache'
exec nsenter --net=/proc/%d/ns/net '%s' "$@"
`, name, s.dir, pid, kit.Program(name))
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	for name, script := range map[string]string{
		"jackfield": fmt.Sprintf("exec '%s/kubectl' -n %s exec -i ds/%s -c jackfield-nri -- jackfield \"$@\"\n", bin, cluster.Namespace, cluster.Release),
		"on-node":   fmt.Sprintf("exec nsenter --mount=/proc/%d/ns/mnt --net=/proc/%[1]d/ns/net \"$@\"\n", pid),
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles copies the kubeconfig and the chart's values out of the cluster.
func writeFiles(dir string, c *cluster.Cluster) error {
	kubeconfig, err := c.Kubeconfig()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "kubeconfig"), kubeconfig, 0o600),
		os.WriteFile(filepath.Join(dir, "values.yaml"), []byte(values), 0o644))
}

// downLimit is how long a cluster may take to end. Removing its cgroups may take a minute.
const downLimit = 2 * time.Minute

// down ends the cluster of a directory, and removes the files of one that was killed.
func down(dir string) error {
	f, err := os.Open(filepath.Join(dir, "pid"))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("No cluster runs.")
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		fmt.Println("No cluster runs.")
		return removeFiles(dir)
	}
	text, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read %q: found %q, want the ID of a process: %w", f.Name(), text, errdefs.ErrDataLoss)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	for end := time.Now().Add(downLimit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			fmt.Println("The cluster is gone.")
			return nil
		}
	}
	return fmt.Errorf("process %d did not end within %s: %w", pid, downLimit, errdefs.ErrUnavailable)
}
