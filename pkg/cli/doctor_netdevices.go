// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// ociFeaturesTimeout bounds the question to one OCI runtime.
const ociFeaturesTimeout = 3 * time.Second

// netDevices reports whether the OCI runtimes know the network devices of CDI files. One
// that does not leaves them out, and reports no error; NRI does not tell a plugin which
// program runs a container.
func (d *doctor) netDevices(s *cdiregistry.Snapshot) {
	device := deviceWithNetDevices(s)
	if device == "" {
		return
	}
	if d.host.Dir() != "/" {
		d.say("netDevices", severityUnknown, "", "whether the OCI runtimes of %s know netDevices, which CDI device %q has, can only be found out on the node itself", d.host.Dir(), device)
		return
	}
	for _, program := range d.ociRuntimes() {
		known, err := knowsNetDevices(program)
		switch {
		case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
			d.say("netDevices", severityUnknown, "run doctor on the node, outside of a container", "OCI runtime %s is not here: whether it knows netDevices, which CDI device %q has, is not known", program, device)
		case err != nil:
			d.say("netDevices", severityWarning, "use runc 1.4 or later", "OCI runtime %s does not say that it knows netDevices (%v): containers get CDI device %q without its network devices, and no error", program, err, device)
		case !known:
			d.say("netDevices", severityWarning, "use runc 1.4 or later", "OCI runtime %s does not know netDevices: containers get CDI device %q without its network devices, and no error", program, device)
		default:
			d.ok("netDevices", "OCI runtime %s knows netDevices", program)
		}
	}
}

// deviceWithNetDevices is the name of a CDI device that has any, or "".
func deviceWithNetDevices(s *cdiregistry.Snapshot) string {
	for _, name := range s.Devices() {
		device, err := s.Device(name)
		if err == nil && len(device.Edits.NetDevices)+len(device.SpecEdits.NetDevices) > 0 {
			return name
		}
	}
	return ""
}

// ociRuntimes are the programs that containerd's and CRI-O's configurations name, and runc,
// containerd's default, or crun, CRI-O's, where it is not said otherwise.
func (d *doctor) ociRuntimes() []string {
	var programs []string
	configured := func(t toml, key string, path ...string) (found bool) {
		prefix := strings.Join(path, "\x00") + "\x00"
		for table, values := range t {
			if strings.HasPrefix(table, prefix) && values[key] != "" {
				programs, found = append(programs, values[key]), true
			}
		}
		return found
	}
	if s, err := containerdFiles(d.files(), d.runtimeConfig); err == nil {
		var found bool
		for _, cri := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"} {
			found = configured(s.toml, "BinaryName", "plugins", cri, "containerd", "runtimes") || found
		}
		if _, err := exec.LookPath("runc"); err == nil || !found {
			programs = append(programs, "runc")
		}
	}
	if s := crioFiles(d.files(), d.crioConfig); len(s.files) > 0 {
		if !configured(s.toml, "runtime_path", append(slices.Clone(crioRuntimeTable), "runtimes")...) {
			programs = append(programs, "crun")
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs)
}

// knowsNetDevices asks an OCI runtime for its features. A runtime that is older than the
// question ends with an error.
func knowsNetDevices(program string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ociFeaturesTimeout)
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
	return f.Linux != nil && f.Linux.NetDevices != nil && f.Linux.NetDevices.Enabled != nil && *f.Linux.NetDevices.Enabled, nil
}
