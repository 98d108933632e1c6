// SPDX-License-Identifier: Apache-2.0

package cniconf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

const (
	socketDir  = "/var/run/jackfield/sockets"
	stateDir   = "/var/run/jackfield/cni"
	devinfoDir = "/var/run/k8s.cni.cncf.io/devinfo/cni"
)

var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// runtime is libcni with its own cache.
type runtime struct {
	*libcni.CNIConfig
	t      *testing.T
	bin    string
	stderr *bytes.Buffer // of the plugins
	ipam   string        // data directory of host-local
	ctx    context.Context
	id     int // of this test's bridge
}

// bridges counts the bridges. Each test needs its own, because a bridge without ports loses its
// address, and the bridge plugin cannot reuse it.
var bridges atomic.Int32

func (r *runtime) bridge() string { return fmt.Sprintf("cni%d", r.id) }

// newRuntime returns a runtime that finds its plugins in dir.
func newRuntime(t *testing.T, dir string) *runtime {
	t.Helper()
	r := &runtime{t: t, bin: dir, stderr: &bytes.Buffer{}, ipam: t.TempDir(), ctx: t.Context(), id: int(bridges.Add(1))}
	r.CNIConfig = libcni.NewCNIConfigWithCacheDir([]string{dir}, t.TempDir(), &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: r.stderr}})
	t.Cleanup(func() {
		if t.Failed() && r.stderr.Len() > 0 {
			t.Logf("the plugins printed: %s", r.stderr)
		}
		for _, d := range []string{"/var/run/jackfield", "/var/run/k8s.cni.cncf.io"} {
			if err := os.RemoveAll(d); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
	return r
}

// list returns a network with the given plugins.
func (r *runtime) list(version string, plugins ...string) *libcni.NetworkConfigList {
	r.t.Helper()
	l, err := libcni.NetworkConfFromBytes([]byte(fmt.Sprintf(`{"cniVersion": %q, "name": "dbnet", "plugins": [%s]}`, version, strings.Join(plugins, ", "))))
	testkit.Must(r.t, err)
	return l
}

// hostLocal returns the ipam key of a plugin's configuration.
func (r *runtime) hostLocal() string {
	return fmt.Sprintf(`"ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.1.0.0/16", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0"}]}`, r.ipam)
}

// attachment returns the attachment of a container in a new network namespace.
func (r *runtime) attachment(id string) *libcni.RuntimeConf {
	r.t.Helper()
	netns, err := testutils.NewNS()
	testkit.Must(r.t, err)
	r.t.Cleanup(func() { _ = testutils.UnmountNS(netns) })
	return r.in(netns, id)
}

func (r *runtime) in(netns ns.NetNS, id string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: netns.Path(), IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "blue"}, {"K8S_POD_NAME", "pod"}}}
}

// add calls ADD for the network and returns the result in the current version.
func (r *runtime) add(l *libcni.NetworkConfigList, rt *libcni.RuntimeConf) *types100.Result {
	r.t.Helper()
	result, err := r.AddNetworkList(r.ctx, l, rt)
	if err != nil {
		r.t.Fatalf("ADD: %v", err)
	}
	if result.Version() != l.CNIVersion {
		r.t.Errorf("the result is of version %q, want %q", result.Version(), l.CNIVersion)
	}
	current, err := types100.NewResultFromResult(result)
	testkit.Must(r.t, err)
	return current
}

// checkNothingLeft checks that everything that ADD created is removed.
func (r *runtime) checkNothingLeft() {
	r.t.Helper()
	var left []string
	for _, dir := range []string{socketDir, stateDir, devinfoDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			r.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != ".jackfield.lock" {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
	}
	leases, err := filepath.Glob(r.ipam + "/*/10.*")
	testkit.Must(r.t, err)
	if left = append(left, leases...); len(left) > 0 {
		r.t.Errorf("left behind: %q", left)
	}
}

// execute runs jackfield-cni or another plugin without libcni.
func (r *runtime) execute(plugin, conf string, env ...string) (out string, e *types.Error) {
	r.t.Helper()
	cmd := exec.CommandContext(r.ctx, filepath.Join(r.bin, plugin))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + r.bin}, env...)
	cmd.Stdin = strings.NewReader(conf)
	cmd.Stderr = r.stderr
	data, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(data), nil
	case !errors.As(err, &exit):
		r.t.Fatal(err)
	}
	e = &types.Error{}
	if err := json.Unmarshal(data, e); err != nil {
		r.t.Fatalf("%v; the plugin failed and printed %q", err, data)
	}
	return string(data), e
}
