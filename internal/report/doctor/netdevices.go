// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// ociFeaturesTimeout bounds the question to one OCI runtime.
const ociFeaturesTimeout = 3 * time.Second

// checkNetDevices reports whether the OCI runtimes know the network devices of CDI files. One that
// does not know them leaves them out, and reports no error; NRI does not tell a plugin which
// program runs a container.
func checkNetDevices(ctx context.Context, n *node) (found findings) {
	device := findNetDevice(n.snapshot)
	if device == "" {
		return found
	}
	if !n.Host.IsLive() {
		found.add(Unknown, "", "whether the OCI runtimes of %s know netDevices, which CDI device %q has, can only be found "+
			"out on the node itself", n.Host.Dir(), device)
		return found
	}
	for _, program := range ociRuntimes(n) {
		known, err := knowsNetDevices(ctx, program)
		switch {
		case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
			found.add(Unknown, "run doctor on the node, outside of a container",
				"OCI runtime %s is not here: whether it knows netDevices, which CDI device %q has, is unknown", program, device)
		case err != nil:
			found.add(Warning, "use runc 1.4 or later", "OCI runtime %s does not say that it knows netDevices (%v): containers "+
				"get CDI device %q without its network devices, and no error", program, err, device)
		case !known:
			found.add(Warning, "use runc 1.4 or later", "OCI runtime %s does not know netDevices: containers get CDI device %q "+
				"without its network devices, and no error", program, device)
		default:
			found.addOK("OCI runtime %s knows netDevices", program)
		}
	}
	return found
}

// findNetDevice returns the name of a CDI device that has network devices, or "".
func findNetDevice(s *cdi.Snapshot) string {
	for _, name := range s.Devices() {
		device, err := s.Device(name)
		if err == nil && len(device.Edits.NetDevices)+len(device.SpecEdits.NetDevices) > 0 {
			return name
		}
	}
	return ""
}

// ociRuntimes returns the programs that containerd's and CRI-O's configurations name, and the
// runtimes' defaults, runc and crun, where they name none.
func ociRuntimes(n *node) []string {
	var programs []string
	add := func(settings []runtimeconfig.Setting) {
		for _, s := range settings {
			if s.Value != "" {
				programs = append(programs, s.Value)
			}
		}
	}
	if conf := n.containerd; conf != nil {
		for _, cri := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"} {
			add(conf.Find("BinaryName", "plugins", cri, "containerd", "runtimes"))
		}
		if _, err := exec.LookPath("runc"); err == nil || len(programs) == 0 {
			programs = append(programs, "runc")
		}
	}
	if conf := n.crio; conf != nil {
		before := len(programs)
		if add(conf.Find("runtime_path", "crio", "runtime", "runtimes")); len(programs) == before {
			programs = append(programs, "crun")
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs)
}

// knowsNetDevices asks an OCI runtime for its features. A runtime that is older than the
// question ends with an error.
func knowsNetDevices(ctx context.Context, program string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ociFeaturesTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "features")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("%s features: %w", program, err)
	}
	var f features.Features
	if err := json.Unmarshal(out, &f); err != nil {
		return false, fmt.Errorf("%s features: %w", program, err)
	}
	return f.Linux != nil && f.Linux.NetDevices != nil && f.Linux.NetDevices.Enabled != nil &&
		*f.Linux.NetDevices.Enabled, nil
}
