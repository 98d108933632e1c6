// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// ociFeaturesTimeout bounds the question to one OCI runtime.
const ociFeaturesTimeout = 3 * time.Second

// ociFeature is a field of CDI files that an OCI runtime leaves out, without an error, if it does not know the field.
type ociFeature struct {
	field, lost string
	remedy      string
	isIn        func(*specs.ContainerEdits) bool
	isKnown     func(*features.Linux) bool
}

var netDevicesFeature = ociFeature{
	"netDevices", "its network devices", "use runc 1.4 or later, or crun 1.28 or later",
	func(e *specs.ContainerEdits) bool { return len(e.NetDevices) > 0 },
	func(l *features.Linux) bool {
		return l.NetDevices != nil && l.NetDevices.Enabled != nil && *l.NetDevices.Enabled
	},
}

var intelRdtFeature = ociFeature{
	"intelRdt", "its class of service", "use runc 1.2 or later, or crun 1.21 or later",
	func(e *specs.ContainerEdits) bool { return e.IntelRdt != nil },
	func(l *features.Linux) bool {
		return l.IntelRdt != nil && l.IntelRdt.Enabled != nil && *l.IntelRdt.Enabled
	},
}

func checkNetDevices(ctx context.Context, n *node) findings { return netDevicesFeature.check(ctx, n) }

func checkIntelRdt(ctx context.Context, n *node) findings { return intelRdtFeature.check(ctx, n) }

// check reports whether the OCI runtimes know the field, if a CDI file has it. NRI does not tell a plugin which program
// runs a container.
func (f *ociFeature) check(ctx context.Context, n *node) (found findings) {
	device := f.findDevice(n.snapshot)
	if device == "" {
		return found
	}
	if !n.Host.IsLive() {
		found.add(Unknown, "", "whether the OCI runtimes of %s know %s, which CDI device %q has, can only be found "+
			"out on the node itself", n.Host.Dir(), f.field, device)
		return found
	}
	for _, program := range ociRuntimes(n) {
		linux, err := readFeatures(ctx, program)
		switch {
		case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
			found.add(Unknown, "run doctor on the node, outside of a container",
				"OCI runtime %s is not here: whether it knows %s, which CDI device %q has, is unknown", program, f.field, device)
		case err != nil:
			found.add(Warning, f.remedy, "OCI runtime %s does not say that it knows %s (%v): containers "+
				"get CDI device %q without %s, and no error", program, f.field, err, device, f.lost)
		case !f.isKnown(linux):
			found.add(Warning, f.remedy, "OCI runtime %s does not know %s: containers get CDI device %q "+
				"without %s, and no error", program, f.field, device, f.lost)
		default:
			found.addOK("OCI runtime %s knows %s", program, f.field)
		}
	}
	return found
}

// findDevice returns the name of a CDI device that has the field, or "".
func (f *ociFeature) findDevice(s *cdi.Snapshot) string {
	for _, name := range s.Devices() {
		device, err := s.Device(name)
		if err == nil && (f.isIn(device.Edits) || f.isIn(device.SpecEdits)) {
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

// readFeatures asks an OCI runtime for its features. A runtime that is older than the question ends with an error.
func readFeatures(ctx context.Context, program string) (*features.Linux, error) {
	ctx, cancel := context.WithTimeout(ctx, ociFeaturesTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "features")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s features: %w", program, err)
	}
	var f features.Features
	if err := json.Unmarshal(out, &f); err != nil {
		return nil, fmt.Errorf("%s features: %w", program, err)
	}
	return cmp.Or(f.Linux, &features.Linux{}), nil
}
