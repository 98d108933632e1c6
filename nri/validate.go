// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/telemetry"
)

// validates reports whether the configuration asks for what other plugins inject
// to be looked at, and the runtime has such an event. An older one refuses the
// registration of a plugin that asks for it.
func (p *Plugin) validates(nriVersion string) bool {
	v := p.core.Load().cfg.Validate
	if !v.Devices && !v.Mounts {
		return false
	}
	if !nriapply.CapabilitiesOf(nriVersion).Validate {
		p.log.WithField("nri", nriVersion).Error("validate is on, and this runtime has no validation of adjustments, which NRI 0.10 brought: what other plugins inject is not looked at")
		return false
	}
	return true
}

// guards reports whether the plugin has itself asked about each container a second
// time, only to be there: a runtime whose NRI is older than the failure policy goes on
// without a plugin that ended during CreateContainer, but not without a validator, and
// counts one that ended as present when it looks for required plugins.
func (p *Plugin) guards() bool {
	can := p.can.Load()
	return can.Validate && !can.FailRequest
}

// ValidateContainerAdjustment refuses the devices and mounts that other plugins
// inject and that the policy does not grant the container.
func (p *Plugin) ValidateContainerAdjustment(ctx context.Context, req *api.ValidateContainerAdjustmentRequest) error {
	v := &validation{p: p, req: req, core: p.core.Load(), own: p.fullName()}
	if cfg := v.core.cfg.Validate; !cfg.Devices && !cfg.Mounts || v.nothing() {
		return nil
	}
	defer p.end(telemetry.ValidateContainerAdjustment, p.begin())
	err := p.onWorker(ctx, telemetry.ValidateContainerAdjustment, func() *logrus.Entry { return p.podLog(req.GetPod()) }, v.run)
	if errors.Is(err, errLate) {
		return fmt.Errorf("jackfield: container %q: validation given up before the runtime's deadline, a file system of this host does not answer: %w",
			nameOf(req.GetPod(), req.GetContainer()), errdefs.ErrUnavailable)
	}
	return err
}

// fullName is the name by which the runtime knows this plugin.
func (p *Plugin) fullName() string {
	idx := os.Getenv(api.PluginIdxEnvVar)
	if idx == "" {
		idx = p.opts.Index
	}
	return idx + "-" + p.opts.Name
}

// validation is one adjustment that is looked at.
type validation struct {
	p       *Plugin
	req     *api.ValidateContainerAdjustmentRequest
	core    *core
	own     string
	subject policy.Subject
	mine    *api.ContainerAdjustment // what this very process answered
}

// nothing reports that no other plugin injects anything.
func (v *validation) nothing() bool {
	a := v.req.GetAdjust()
	return len(a.GetMounts())+len(a.GetLinux().GetDevices())+len(a.GetCDIDevices()) == 0
}

func (v *validation) run() error {
	pod, c := v.req.GetPod(), v.req.GetContainer()
	v.subject = resolve.Subject(request(v.p.runtimeName(), pod, c))
	cfg, a, id := v.core.cfg.Validate, v.req.GetAdjust(), c.GetId()
	v.mine = v.p.creations.adjustment(pod.GetId(), id)
	var errs []error
	if cfg.Devices {
		for _, d := range a.GetLinux().GetDevices() {
			if owner, ok := v.req.GetOwners().DeviceOwner(id, d.GetPath()); v.foreign(owner, ok, v.injectedDevice(d)) && !removed(d.GetPath()) {
				errs = append(errs, v.by(owner, v.device(d)))
			}
		}
		for _, d := range a.GetCDIDevices() {
			if owner, ok := v.req.GetOwners().CdiDeviceOwner(id, d.GetName()); v.foreign(owner, ok, false) {
				_, err := v.ask(v.policy().CDI(v.subject, d.GetName()))
				errs = append(errs, v.by(owner, err))
			}
		}
	}
	if cfg.Mounts {
		for _, m := range a.GetMounts() {
			if owner, ok := v.req.GetOwners().MountOwner(id, m.GetDestination()); v.foreign(owner, ok, v.injectedMount(m)) && !removed(m.GetDestination()) {
				errs = append(errs, v.by(owner, v.mount(m)))
			}
		}
	}
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	for _, e := range errs {
		var refused *policy.RefusedError
		switch {
		case errors.As(e, &refused):
			v.p.countRefusal(refused.Rule)
		case e != nil:
			v.p.counters.Count(telemetry.SourceContainer, telemetry.Failed)
		}
	}
	// One line each: the runtime puts it into an event.
	err = fmt.Errorf("jackfield: container %q: %w", nameOf(pod, c), err)
	v.p.later.do(func() {
		v.p.containerLog(pod, c).WithError(err).Error("container refused for what another plugin injects")
		v.p.audit(eventRefused, err, v.p.told(pod, c, nil, nil))
	})
	return err
}

func (v *validation) policy() *policy.Policy { return v.core.engine.Policy() }

// foreign reports whether what has this owner is another plugin's, and not one that
// the configuration trusts. What no plugin owns is the runtime's. Another plugin may have
// registered under this one's name: only what this process injected is its own.
func (v *validation) foreign(owner string, owned, injected bool) bool {
	return owned && !(owner == v.own && injected) && !slices.Contains(v.core.cfg.Validate.Except, owner)
}

func (v *validation) injectedDevice(d *api.LinuxDevice) bool {
	return slices.ContainsFunc(v.mine.GetLinux().GetDevices(), func(m *api.LinuxDevice) bool {
		return m.GetPath() == d.GetPath() && m.GetType() == d.GetType() && m.GetMajor() == d.GetMajor() && m.GetMinor() == d.GetMinor()
	})
}

func (v *validation) injectedMount(m *api.Mount) bool {
	return slices.ContainsFunc(v.mine.GetMounts(), func(o *api.Mount) bool {
		return o.GetDestination() == m.GetDestination() && o.GetSource() == m.GetSource() && slices.Equal(o.GetOptions(), m.GetOptions())
	})
}

// removed reports whether an entry says that a plugin takes something away.
func removed(name string) bool {
	_, marked := api.IsMarkedForRemoval(name)
	return marked
}

func (v *validation) by(owner string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("injected by NRI plugin %q: %w", owner, err)
}

// ask is a decision, of which audit mode's is said.
func (v *validation) ask(g policy.Grant, err error) (policy.Grant, error) {
	if g.Audited {
		v.p.counters.Audited.Add()
		v.p.containerLog(v.req.GetPod(), v.req.GetContainer()).WithField("refusal", g.Refusal.Error()).Warn("mode enforce would refuse this")
	}
	return g, err
}

// device asks about the node of the host that has the device's number: the path in
// the container says nothing of what it is.
func (v *validation) device(d *api.LinuxDevice) error {
	if d.GetType() == "p" {
		return nil // a FIFO is none of the host's
	}
	path, err := hostNode(v.p.opts.Host, d)
	if err != nil {
		return err
	}
	_, err = v.ask(v.policy().Device(v.subject, path))
	return err
}

// hostNode is the host's path of a device: the one it has in the container where
// that is the same device on the host, or else the one that the kernel names.
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

// writableBelow reports whether a mount brings others along, which stay as they are:
// they can be written through a read-only one, unless that is one recursively.
func (v *validation) writableBelow(m *api.Mount) bool {
	if !slices.Contains(m.GetOptions(), "rbind") || slices.Contains(m.GetOptions(), "rro") {
		return false
	}
	real, err := v.p.opts.Host.Resolve(m.GetSource())
	if err != nil {
		return false // which refuses it
	}
	mounts, err := hostfs.Mounts()
	below := strings.TrimSuffix(v.p.opts.Host.Path(real), "/") + "/"
	return err != nil || slices.ContainsFunc(mounts, func(o hostfs.Mount) bool { return strings.HasPrefix(o.Point, below) })
}

// ofNothing are types of mounts that hand over nothing of the host.
var ofNothing = []string{"tmpfs", "mqueue", "devpts"}

// mount asks about a mount of the host, by its path as written and as it resolves.
func (v *validation) mount(m *api.Mount) error {
	bind := m.GetType() == "bind" || slices.Contains(m.GetOptions(), "bind") || slices.Contains(m.GetOptions(), "rbind")
	if !bind && slices.Contains(ofNothing, m.GetType()) {
		return nil
	}
	ro := resolve.ReadOnly(m.GetOptions()) && !v.writableBelow(m)
	if _, err := v.ask(v.policy().Mount(v.subject, m.GetSource(), m.GetDestination(), ro)); err != nil {
		return err
	}
	real, err := v.p.opts.Host.Resolve(m.GetSource())
	if err != nil {
		return fmt.Errorf("mount %q at %q: %w", m.GetSource(), m.GetDestination(), err)
	}
	if real == m.GetSource() {
		return nil
	}
	_, err = v.ask(v.policy().Mount(v.subject, real, m.GetDestination(), ro))
	return err
}
