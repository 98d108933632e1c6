// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// validator refuses devices and mounts that other plugins inject and that the policy does not grant.
type validator struct {
	*daemon
	current    func() *core
	runtime    *runtimeLink
	containers *containerTable
	outcomes   *outcomes
	own        string // the name with which this plugin registers
}

// isOn reports whether the configuration requires the validation of other plugins' injections, and the runtime
// supports it. An older runtime refuses the registration of a plugin that subscribes to the event.
func (v *validator) isOn(nriVersion string) bool {
	cfg := v.current().cfg.Validate
	if !cfg.Devices && !cfg.Mounts {
		return false
	}
	if !capability.ForVersion(nriVersion).Validate {
		v.log.WithField("nri", nriVersion).Error("validate is on, and this runtime does not validate adjustments, " +
			"which NRI 0.10 introduced: what other plugins inject is not validated")
		return false
	}
	return true
}

// newValidation returns the validation of an adjustment; nil if there is nothing to validate.
func (v *validator) newValidation(req *api.ValidateContainerAdjustmentRequest) *validation {
	one := &validation{validator: v, req: req, core: v.current()}
	a := req.GetAdjust()
	injects := len(a.GetMounts())+len(a.GetLinux().GetDevices())+len(a.GetCDIDevices()) > 0
	if cfg := one.core.cfg.Validate; !cfg.Devices && !cfg.Mounts || !injects {
		return nil
	}
	return one
}

// validation is the validation of one adjustment.
type validation struct {
	*validator
	req     *api.ValidateContainerAdjustmentRequest
	core    *core
	subject policy.Subject
	policy  *policy.Policy
	answer  *api.ContainerAdjustment // of this process
}

// checkAdjustment refuses the container if any foreign device or mount is not granted.
func (v *validation) checkAdjustment() error {
	pod, c := v.req.GetPod(), v.req.GetContainer()
	v.subject, v.policy = engine.Subject(newRequest(v.runtime.name(), pod, c)), v.core.engine.Policy()
	v.subject.Explanations = new(engine.MaxExplanations)
	cfg, a, owners, id := v.core.cfg.Validate, v.req.GetAdjust(), v.req.GetOwners(), c.GetId()
	v.answer = v.containers.adjustmentOf(id)
	var errs []error
	deny := func(owner string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("injected by NRI plugin %q: %w", owner, err))
		}
	}
	if cfg.Devices {
		for _, d := range a.GetLinux().GetDevices() {
			owner, ok := owners.DeviceOwner(id, d.GetPath())
			if v.isForeign(owner, ok, v.injectedDevice(d)) && !isRemoval(d.GetPath()) {
				deny(owner, v.checkDevice(d))
			}
		}
		for _, d := range a.GetCDIDevices() {
			if owner, ok := owners.CdiDeviceOwner(id, d.GetName()); v.isForeign(owner, ok, false) {
				deny(owner, v.reportAudited(v.policy.CDI(v.subject, d.GetName())))
			}
		}
	}
	if cfg.Mounts {
		for _, m := range a.GetMounts() {
			owner, ok := owners.MountOwner(id, m.GetDestination())
			if v.isForeign(owner, ok, v.injectedMount(m)) && !isRemoval(m.GetDestination()) {
				deny(owner, v.checkMount(m))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	for _, e := range errs {
		if refused, ok := errors.AsType[*policy.RefusedError](e); ok {
			v.outcomes.countRefusal(refused.Rule)
		} else {
			v.counters.CountRequest(telemetry.SourceContainer, telemetry.Failed)
		}
	}
	err := errors.Join(errs...)
	record := v.outcomes.newRecord(pod, c, nil, nil)
	v.outcomes.logRefusal(pod, c, err, "container refused for what another plugin injects", record)
	return err
}

// isForeign reports whether the owner is another plugin that the configuration does not trust. Entries without
// an owner belong to the runtime. Another plugin may have registered under this plugin's name: only the
// injection of this process is its own.
func (v *validation) isForeign(owner string, owned, injected bool) bool {
	return owned && !(owner == v.own && injected) && !slices.Contains(v.core.cfg.Validate.Except, owner)
}

// injectedDevice reports whether this plugin's own response has the device node.
func (v *validation) injectedDevice(d *api.LinuxDevice) bool {
	return slices.ContainsFunc(v.answer.GetLinux().GetDevices(), func(m *api.LinuxDevice) bool {
		return m.GetPath() == d.GetPath() && m.GetType() == d.GetType() &&
			m.GetMajor() == d.GetMajor() && m.GetMinor() == d.GetMinor()
	})
}

// injectedMount reports whether this plugin's own response has the mount.
func (v *validation) injectedMount(m *api.Mount) bool {
	return slices.ContainsFunc(v.answer.GetMounts(), func(o *api.Mount) bool {
		return o.GetDestination() == m.GetDestination() && o.GetSource() == m.GetSource() &&
			slices.Equal(o.GetOptions(), m.GetOptions())
	})
}

// isRemoval reports whether an entry of an adjustment removes something.
func isRemoval(name string) bool {
	_, marked := api.IsMarkedForRemoval(name)
	return marked
}

// reportAudited counts and logs a grant that mode enforce would deny.
func (v *validation) reportAudited(g policy.Grant, err error) error {
	if g.Audited {
		v.counters.Audited.Add(1)
		v.containerLog(v.req.GetPod(), v.req.GetContainer()).WithField("refusal", g.Refusal.Error()).
			Warn("mode enforce would deny this request")
	}
	return err
}

// checkDevice checks the host's node with the device's number, because the path in the container can be any.
func (v *validation) checkDevice(d *api.LinuxDevice) error {
	if d.GetType() == "p" {
		return nil // a FIFO does not belong to the host
	}
	path, err := hostNode(v.host, d)
	if err != nil {
		return err
	}
	return v.reportAudited(v.policy.Device(v.subject, path))
}

// hostNode returns the host's path of a device: its path in the container if the host has the same device
// there, or else the path that the kernel reports.
func hostNode(host hostfs.Root, d *api.LinuxDevice) (string, error) {
	format, class := uint32(unix.S_IFCHR), "char"
	if d.GetType() == "b" {
		format, class = unix.S_IFBLK, "block"
	}
	is := func(path string) bool {
		st, err := host.Lstat(path)
		return err == nil && st.Mode&unix.S_IFMT == format &&
			int64(unix.Major(st.Rdev)) == d.GetMajor() && int64(unix.Minor(st.Rdev)) == d.GetMinor()
	}
	if hostfs.CheckPath(d.GetPath()) == nil && is(d.GetPath()) {
		return d.GetPath(), nil
	}
	number := strconv.FormatInt(d.GetMajor(), 10) + ":" + strconv.FormatInt(d.GetMinor(), 10)
	uevent := "/sys/dev/" + class + "/" + number + "/uevent"
	data, err := host.ReadFile(uevent, 4<<10)
	if err == nil {
		for line := range strings.Lines(string(data)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok && is("/dev/"+name) {
				return "/dev/" + name, nil
			}
		}
	}
	return "", fmt.Errorf("device %s %s at %q: no node of this host has this number, neither at that path "+
		"nor where %s says, so no rule can allow it: %w", class, number, d.GetPath(), uevent, errdefs.ErrPermissionDenied)
}

// writableBelow reports whether a mount includes other mounts, which a read-only bind mount
// leaves writable unless it is recursive.
func (v *validation) writableBelow(m *api.Mount) bool {
	if o := mountopt.Parse(m.GetOptions()); !o.Recursive || o.SetAll&unix.MOUNT_ATTR_RDONLY != 0 {
		return false
	}
	real, err := v.host.Resolve(m.GetSource())
	if err != nil {
		return false // checkMount refuses it
	}
	mounts, err := hostfs.Mounts()
	below := strings.TrimSuffix(v.host.Path(real), "/") + "/"
	isBelow := func(o hostfs.Mount) bool { return strings.HasPrefix(o.Point, below) }
	return err != nil || slices.ContainsFunc(mounts, isBelow)
}

// checkMount checks a mount of the host, by its path as written and as resolved.
func (v *validation) checkMount(m *api.Mount) error {
	isBind := mountopt.IsBind(m.GetType(), m.GetOptions())
	if !isBind && slices.Contains([]string{"tmpfs", "mqueue", "devpts"}, m.GetType()) {
		return nil // grants access to nothing on the host
	}
	ro := mountopt.IsReadOnly(m.GetOptions()) && !v.writableBelow(m)
	if !slices.Contains([]string{"", "bind", "none"}, m.GetType()) {
		// The options of other types contain host paths (overlay), or the mount exposes the kernel (debugfs).
		// With an option bind, runtimes differ in whether the type counts.
		err := v.reportAudited(v.policy.FileSystem(v.subject, m.GetType(), m.GetDestination(), ro))
		if err != nil || !isBind {
			return err
		}
	}
	if err := v.reportAudited(v.policy.Mount(v.subject, m.GetSource(), m.GetDestination(), ro)); err != nil {
		return err
	}
	real, err := v.host.Resolve(m.GetSource())
	if err != nil {
		return fmt.Errorf("mount %q at %q: %w", m.GetSource(), m.GetDestination(), err)
	}
	if real == m.GetSource() {
		return nil
	}
	return v.reportAudited(v.policy.Mount(v.subject, real, m.GetDestination(), ro))
}
