// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
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

// validatesOthers reports whether the configuration wants what other plugins inject to be validated,
// and the runtime has such an event. An older runtime refuses the registration of a plugin that
// subscribes to it.
func (p *Plugin) validatesOthers(nriVersion string) bool {
	v := p.config.core.Load().cfg.Validate
	if !v.Devices && !v.Mounts {
		return false
	}
	if !capability.ForVersion(nriVersion).Validate {
		p.log.WithField("nri", nriVersion).Error("validate is on, and this runtime does not validate adjustments, which NRI 0.10 introduced: what other plugins inject is not validated")
		return false
	}
	return true
}

// guardsCreations reports whether the plugin subscribes to the validation of each container only to be
// present: a runtime whose NRI is older than the failure policy goes on without a plugin that
// ended during CreateContainer, but not without a validator, and counts one that ended as
// present when it checks for required plugins.
func (p *Plugin) guardsCreations() bool {
	can := p.runtime.capabilities.Load()
	return can.Validate && !can.FailRequest
}

// ValidateContainerAdjustment refuses the devices and mounts that other plugins
// inject and that the policy does not grant the container.
func (p *Plugin) ValidateContainerAdjustment(ctx context.Context, req *api.ValidateContainerAdjustmentRequest) error {
	own := cmp.Or(os.Getenv(api.PluginIdxEnvVar), p.opts.Index) + "-" + p.opts.Name
	v := &validation{p: p, req: req, core: p.config.core.Load(), own: own}
	a := req.GetAdjust()
	injects := len(a.GetMounts())+len(a.GetLinux().GetDevices())+len(a.GetCDIDevices()) > 0
	if cfg := v.core.cfg.Validate; !cfg.Devices && !cfg.Mounts || !injects {
		return nil
	}
	defer p.timeCall(telemetry.ValidateContainerAdjustment)()
	err := p.runOnWorker(ctx, telemetry.ValidateContainerAdjustment, req.GetPod(), v.checkAdjustment)
	if err != nil {
		return newRefusal(req.GetPod(), req.GetContainer(), p.explainTimeout(err))
	}
	return nil
}

// validation is the validation of one adjustment.
type validation struct {
	p       *Plugin
	req     *api.ValidateContainerAdjustmentRequest
	core    *core
	own     string // the name by which the runtime knows this plugin
	subject policy.Subject
	policy  *policy.Policy
	answer  *api.ContainerAdjustment // of this process
}

func (v *validation) checkAdjustment() error {
	pod, c := v.req.GetPod(), v.req.GetContainer()
	v.subject, v.policy = engine.Subject(newRequest(v.p.runtimeName(), pod, c)), v.core.engine.Policy()
	v.subject.Explanations = new(engine.MaxExplanations)
	cfg, a, id := v.core.cfg.Validate, v.req.GetAdjust(), c.GetId()
	v.answer = v.p.containers.adjustmentOf(id)
	var errs []error
	deny := func(owner string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("injected by NRI plugin %q: %w", owner, err))
		}
	}
	if cfg.Devices {
		for _, d := range a.GetLinux().GetDevices() {
			if owner, ok := v.req.GetOwners().DeviceOwner(id, d.GetPath()); v.isForeign(owner, ok, v.injectedDevice(d)) && !isRemoval(d.GetPath()) {
				deny(owner, v.checkDevice(d))
			}
		}
		for _, d := range a.GetCDIDevices() {
			if owner, ok := v.req.GetOwners().CdiDeviceOwner(id, d.GetName()); v.isForeign(owner, ok, false) {
				deny(owner, v.reportAudited(v.policy.CDI(v.subject, d.GetName())))
			}
		}
	}
	if cfg.Mounts {
		for _, m := range a.GetMounts() {
			if owner, ok := v.req.GetOwners().MountOwner(id, m.GetDestination()); v.isForeign(owner, ok, v.injectedMount(m)) && !isRemoval(m.GetDestination()) {
				deny(owner, v.checkMount(m))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	for _, e := range errs {
		if refused, ok := errors.AsType[*policy.RefusedError](e); ok {
			v.p.countRefusal(refused.Rule)
		} else {
			v.p.counters.CountRequest(telemetry.SourceContainer, telemetry.Failed)
		}
	}
	err := errors.Join(errs...)
	v.p.logRefusal(pod, c, err, "container refused for what another plugin injects", v.p.containerRecord(pod, c, nil, nil))
	return err
}

// isForeign reports whether the owner is another plugin that the configuration does not trust.
// What no plugin owns is the runtime's. Another plugin may have registered under this one's
// name: only what this process injected is its own.
func (v *validation) isForeign(owner string, owned, injected bool) bool {
	return owned && !(owner == v.own && injected) && !slices.Contains(v.core.cfg.Validate.Except, owner)
}

func (v *validation) injectedDevice(d *api.LinuxDevice) bool {
	return slices.ContainsFunc(v.answer.GetLinux().GetDevices(), func(m *api.LinuxDevice) bool {
		return m.GetPath() == d.GetPath() && m.GetType() == d.GetType() && m.GetMajor() == d.GetMajor() && m.GetMinor() == d.GetMinor()
	})
}

func (v *validation) injectedMount(m *api.Mount) bool {
	return slices.ContainsFunc(v.answer.GetMounts(), func(o *api.Mount) bool {
		return o.GetDestination() == m.GetDestination() && o.GetSource() == m.GetSource() && slices.Equal(o.GetOptions(), m.GetOptions())
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
		v.p.counters.Audited.Add(1)
		v.p.containerLog(v.req.GetPod(), v.req.GetContainer()).WithField("refusal", g.Refusal.Error()).Warn("mode enforce would deny this request")
	}
	return err
}

// checkDevice checks the host's node with the device's number: the path in the container says
// nothing about the device.
func (v *validation) checkDevice(d *api.LinuxDevice) error {
	if d.GetType() == "p" {
		return nil // a FIFO does not belong to the host
	}
	path, err := hostNode(v.p.opts.Host, d)
	if err != nil {
		return err
	}
	return v.reportAudited(v.policy.Device(v.subject, path))
}

// hostNode returns the host's path of a device: its path in the container where that is the same
// device on the host, or else the path that the kernel reports.
func hostNode(host hostfs.Root, d *api.LinuxDevice) (string, error) {
	format, class := uint32(unix.S_IFCHR), "char"
	if d.GetType() == "b" {
		format, class = unix.S_IFBLK, "block"
	}
	is := func(path string) bool {
		st, err := host.Lstat(path)
		return err == nil && st.Mode&unix.S_IFMT == format && int64(unix.Major(st.Rdev)) == d.GetMajor() && int64(unix.Minor(st.Rdev)) == d.GetMinor()
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
	return "", fmt.Errorf("device %s %s at %q: no node of this host has this number, neither at that path nor where %s says, so no rule can allow it: %w",
		class, number, d.GetPath(), uevent, errdefs.ErrPermissionDenied)
}

// writableBelow reports whether a mount includes other mounts, which a read-only bind mount
// leaves writable unless it is recursive.
func (v *validation) writableBelow(m *api.Mount) bool {
	if o := mountopt.Parse(m.GetOptions()); !o.Recursive || o.SetAll&unix.MOUNT_ATTR_RDONLY != 0 {
		return false
	}
	real, err := v.p.opts.Host.Resolve(m.GetSource())
	if err != nil {
		return false // checkMount refuses it
	}
	mounts, err := hostfs.Mounts()
	below := strings.TrimSuffix(v.p.opts.Host.Path(real), "/") + "/"
	return err != nil || slices.ContainsFunc(mounts, func(o hostfs.Mount) bool { return strings.HasPrefix(o.Point, below) })
}

// bindTypes are the types of mounts that are checked by their source.
var bindTypes = []string{"", "bind", "none"}

// hostlessTypes are types of mounts that grant access to nothing on the host.
var hostlessTypes = []string{"tmpfs", "mqueue", "devpts"}

// checkMount checks a mount of the host, by its path as written and as resolved.
func (v *validation) checkMount(m *api.Mount) error {
	isBind := mountopt.IsBind(m.GetType(), m.GetOptions())
	if !isBind && slices.Contains(hostlessTypes, m.GetType()) {
		return nil
	}
	ro := mountopt.IsReadOnly(m.GetOptions()) && !v.writableBelow(m)
	if !slices.Contains(bindTypes, m.GetType()) {
		// The options of such a mount name host paths (overlay), or it shows the kernel (debugfs). With an
		// option bind, runtimes differ in whether the type counts.
		err := v.reportAudited(v.policy.FileSystem(v.subject, m.GetType(), m.GetDestination(), ro))
		if err != nil || !isBind {
			return err
		}
	}
	if err := v.reportAudited(v.policy.Mount(v.subject, m.GetSource(), m.GetDestination(), ro)); err != nil {
		return err
	}
	real, err := v.p.opts.Host.Resolve(m.GetSource())
	if err != nil {
		return fmt.Errorf("mount %q at %q: %w", m.GetSource(), m.GetDestination(), err)
	}
	if real == m.GetSource() {
		return nil
	}
	return v.reportAudited(v.policy.Mount(v.subject, real, m.GetDestination(), ro))
}
