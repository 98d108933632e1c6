// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/port/vswitchdriver"
)

const (
	// DefaultTimeout applies to networks that set no timeout. After a timeout, the reconciler of
	// the NRI plugin removes a port that the vswitch created too late.
	DefaultTimeout = 10 * time.Second
	// MinTimeout and MaxTimeout are the bounds of Attachment.Timeout.
	MinTimeout, MaxTimeout = 3 * time.Second, 2 * time.Minute
	// undoTime is the last part of an Add's time. It is reserved for removing objects that were
	// created too late.
	undoTime = 2 * time.Second
)

// LimitTime returns a context that ends at the deadline of an Add. Without a port it has no
// deadline.
func (t *Attachment) LimitTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.Port.Vswitch == "" {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, cmp.Or(t.Timeout, DefaultTimeout))
}

// limitCreation returns the context for the creating steps of an Add. It ends early enough to undo
// them.
func limitCreation(ctx context.Context) (context.Context, context.CancelFunc) {
	end, isLimited := ctx.Deadline()
	if !isLimited {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-undoTime))
}

// limitSwitch returns a context for one operation's requests to a vswitch.
func limitSwitch(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(timeout, DefaultTimeout))
}

// loadNodeConfig loads the node's configuration and returns it with the named vswitch.
func (t *Attachment) loadNodeConfig(file, name string) (*config.Config, config.Vswitch, error) {
	cfg, err := config.LoadOrCopy(t.Root, file)
	if errdefs.IsNotFound(err) {
		otherwise := ""
		if file == config.DefaultPath {
			otherwise = ", or run jackfield-nri, which keeps a copy of its configuration in " + config.DefaultCopyPath
		}
		return nil, config.Vswitch{}, Fail(codeConfig, "the node's configuration is missing",
			"create %s with the vswitch %q under vswitches%s", file, name, otherwise)
	}
	if err != nil {
		return nil, config.Vswitch{}, Fail(codeConfig, "the node's configuration is invalid", "%v", err)
	}
	t.loadedFile = cfg.File()
	v, ok := cfg.Vswitch(name)
	if !ok {
		names := []string{}
		for _, v := range cfg.Vswitches {
			names = append(names, v.Name)
		}
		return nil, v, Fail(codeConfig, "vswitch "+diag.Quote(name)+" is not in the node's configuration",
			"vswitches of %s has %s%s",
			cfg.File(), cmp.Or(strings.Join(names, ", "), "none"), diag.Suggest(name, names...))
	}
	return cfg, v, nil
}

// openSwitch returns the driver of a vswitch in the node's configuration.
func (t *Attachment) openSwitch(file, name string) (vswitch.Driver, error) {
	_, v, err := t.loadNodeConfig(file, name)
	if err != nil {
		return nil, err
	}
	return t.openDriver(v)
}

// openDriver returns the driver of a vswitch.
func (t *Attachment) openDriver(v config.Vswitch) (vswitch.Driver, error) {
	if t.driver != nil {
		return t.driver, nil
	}
	return vswitchdriver.Open(t.Root, v)
}

// switchError adds a code to an error of a vswitch, and a remedy if the vswitch is unreachable. A
// refusal that concerns a key of the network is located in the network's configuration.
func (t *Attachment) switchError(err error) error {
	var refusal *vswitch.Refusal
	var unavailable *vswitch.UnavailableError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unavailable):
		remedy := "check that the vswitch runs, and vswitches." + unavailable.Switch +
			".endpoint of the node's configuration"
		if unavailable.Down {
			remedy = "start the vswitch, or correct vswitches." + unavailable.Switch +
				".endpoint of the node's configuration"
		}
		return Fail(codeLater, "the vswitch is unreachable", "%v: %s", err, remedy)
	case errors.Is(err, context.DeadlineExceeded) || errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err):
		return Fail(codeLater, "the vswitch is unreachable", "%v", err)
	case errdefs.IsAlreadyExists(err):
		return Fail(CodeExists, "the port already exists", "%v", err)
	case errors.As(err, &refusal):
		place, named := t.loadedFile+": ", *refusal
		if !strings.HasPrefix(refusal.Field, "vswitches.") {
			place, named.Field = t.Source.Place(refusal.Field), t.Source.Name(refusal.Field)
		}
		return Fail(CodeSwitch, "the vswitch refuses the port"+strings.TrimSuffix(": "+named.Field, ": "), "%s%v",
			place, &named)
	}
	return ioError("vswitch", err)
}

// portOwner returns the owner of an attachment's port. Container ID and interface alone identify
// the port.
func portOwner(k record.Key) vswitch.Owner {
	return vswitch.Owner{ContainerID: k.ContainerID, Interface: k.Interface, Network: k.Network}
}

// CheckBridge checks that the vswitch and the bridge of an attachment's port are in the node's configuration.
func (t *Attachment) CheckBridge() error {
	if t.Port.Vswitch == "" {
		return nil
	}
	_, _, _, err := t.findBridge()
	return err
}

// findBridge returns the node's configuration, and the vswitch and the bridge that the attachment's
// port uses.
func (t *Attachment) findBridge() (*config.Config, config.Vswitch, string, error) {
	cfg, v, err := t.loadNodeConfig(t.ConfigFile, t.Port.Vswitch)
	if err != nil {
		return nil, v, "", err
	}
	bridge := cmp.Or(t.Port.Bridge, v.Defaults.Bridge)
	if bridge != "" && !slices.Contains(v.Bridges, bridge) {
		return nil, v, "", t.Invalid("bridge", diag.Quote(bridge),
			"one of the bridges of vswitch "+v.Name+" in "+cfg.File()+": "+
				cmp.Or(strings.Join(v.Bridges, ", "), "none")+diag.Suggest(bridge, v.Bridges...))
	}
	return cfg, v, bridge, nil
}

// planPort plans the attachment's port and checks it against the node's policy.
func (a *addition) planPort() error {
	p := &a.Port
	if p.Vswitch == "" {
		return nil
	}
	if path := SocketPath(a.before); path != "" && a.record.Directory == "" {
		return a.Invalid("vswitch", diag.Quote(p.Vswitch),
			"no vswitch, because the device plugin has allocated a port with the socket "+diag.Quote(path)+
				": remove vswitch from the configuration, or resourceName from the network's definition")
	}
	cfg, v, bridge, err := a.findBridge()
	if err != nil {
		return err
	}
	if a.peer, err = a.openDriver(v); err != nil {
		return err
	}
	if a.policy, err = cfg.CompilePolicy(""); err != nil {
		return Fail(codeConfig, "the node's configuration is invalid", "%v", err)
	}
	if _, err := a.policy.Port(a.subject(), policy.Port{Switch: v.Name, Bridge: bridge, VLAN: p.VLAN}); err != nil {
		return Fail(CodeDenied, "the node's policy denies port "+v.Name+"/"+bridge, "%v", err)
	}
	owner := portOwner(a.Key)
	owner.Namespace, owner.Pod = a.Namespace, a.Pod
	a.port = &vswitch.Port{
		Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.Type(a.Device.Kind), Socket: a.socket,
		SwitchListens: a.Device.hostCreates(),
		Bridge:        bridge, MAC: a.MAC, MTU: cmp.Or(p.MTU, v.Defaults.MTU), VLAN: p.VLAN,
		Queues: cmp.Or(p.Queues, v.Defaults.Queues),
		Rate:   cmp.Or(p.Rate, a.Bandwidth["egressRate"]),
	}
	return nil
}

// subject returns the attachment's pod for policy checks.
func (a *addition) subject() policy.Subject {
	return policy.Subject{Namespace: a.Namespace, Pod: a.Pod}
}

// recordPort records the port if the policy permits the pod another port. It counts and records
// under one lock, so that two concurrent ADDs cannot both take the last port.
func (a *addition) recordPort(ctx context.Context) error {
	if a.policy.HasPortLimits(a.subject()) {
		end, _ := ctx.Deadline() // set by Add
		unlock, err := a.st.Lock(time.Until(end))
		if err != nil {
			return recordError(a.Interface, err)
		}
		defer unlock()
		others, err := a.st.CountPorts(a.Key)
		if err != nil {
			return recordError(a.Interface, err)
		}
		if refused, _ := a.policy.LimitPorts(a.subject(), others); refused != nil {
			return Fail(CodeDenied, "the node's policy limits the ports of the pod", "%v", refused)
		}
	}
	a.record.Switch, a.record.ConfigFile, a.record.Port = a.Port.Vswitch, a.ConfigFile, a.port
	return recordError(a.Interface, a.st.Update(&a.record))
}

// createPort records the port with its addresses and creates it. It updates the plan with the
// properties that the vswitch reports.
func (a *addition) createPort(ctx context.Context, addresses Addresses) error {
	a.port.Addresses = addresses.IPs
	if err := a.recordPort(ctx); err != nil {
		return err
	}
	a.Reached.report("port recorded")
	unlock, err := lockPort(ctx, a.st, &a.record)
	if err != nil {
		return err
	}
	defer unlock()
	got, err := a.peer.Ensure(ctx, *a.port)
	a.unreached = vswitch.IsDown(err)
	if err != nil {
		return a.switchError(err)
	}
	a.Reached.report("port created")
	a.port = &got
	if got.Socket == a.socket {
		return nil
	}
	// Some vswitches choose the path of the socket.
	if err := a.checkLength(got.Socket); err != nil {
		return err
	}
	a.socket = got.Socket
	setSocket(a.record.Info, got.Socket)
	return recordError(a.Interface, a.st.Update(&a.record))
}

// lockPort takes the lock of a record with a port, so that the reconciler of the NRI plugin cannot
// re-create the port during its removal.
func lockPort(ctx context.Context, st *record.Store, r *record.Record) (unlock func(), err error) {
	if r.Port == nil {
		return func() {}, nil
	}
	end, _ := ctx.Deadline() // set by every caller
	unlock, err = st.LockRecord(r.Key, time.Until(end))
	if err != nil {
		return nil, recordError(r.Interface, err)
	}
	if unlock == nil {
		return nil, Fail(codeLater, "try again later", "another process has changed or removed record %q meanwhile",
			r.FileName())
	}
	return unlock, nil
}

// removePort removes the port of a record. The caller keeps the record if it fails.
func (m *removal) removePort(ctx context.Context, r *record.Record) error {
	if r.Port == nil {
		return nil
	}
	driver, isVolatile, err := m.openRecordedSwitch(r)
	if err != nil {
		e := AsError(err)
		return Fail(e.Code, e.Msg, "%s; port %s stays on vswitch %q: put the vswitch back into the node's "+
			"configuration, or remove the port yourself and then the record %s",
			e.Details, r.Port.Name, r.Switch, path.Join(m.StateDir, r.FileName()))
	}
	err = vswitch.RemovePort(ctx, driver, *r.Port)
	if vswitch.IsDown(err) && (isVolatile || m.unreached) {
		return nil // a stopped vswitch has lost the port, or never created it
	}
	return m.switchError(err)
}

// openRecordedSwitch returns the driver of a record's vswitch. isVolatile is set if that vswitch loses its ports when
// it stops; Open vSwitch keeps them in its database.
func (m *removal) openRecordedSwitch(r *record.Record) (driver vswitch.Driver, isVolatile bool, err error) {
	_, v, err := m.loadNodeConfig(cmp.Or(r.ConfigFile, config.DefaultPath), r.Switch)
	if err != nil {
		return nil, false, err
	}
	driver, err = m.openDriver(v)
	return driver, v.Type != config.VswitchOVS, err
}

// unrecordedTime bounds the search for the port of an attachment without a record. Such a port
// exists only if the record was lost.
const unrecordedTime = 2 * time.Second

// removeUnrecordedPort removes the port of an attachment without a record, unless another network's
// record has the same interface. It only logs a failure, because an Add that requested a port
// leaves a record.
func (m *removal) removeUnrecordedPort(ctx context.Context, key record.Key) {
	if m.Port.Vswitch == "" {
		return
	}
	if m.st != nil {
		keys, err := m.st.Keys()
		if err != nil || slices.ContainsFunc(keys, func(k record.Key) bool {
			return k.ContainerID == key.ContainerID && k.Interface == key.Interface
		}) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, unrecordedTime)
	defer cancel()
	driver, err := m.openSwitch(m.ConfigFile, m.Port.Vswitch)
	if err == nil {
		err = m.switchError(driver.Remove(ctx, portOwner(key)))
	}
	if err != nil {
		fmt.Fprintf(m.Log, "%s: the attachment has no record, so no port of it should exist; cannot check "+
			"vswitch %q: %v\n", m.Program, m.Port.Vswitch, err)
	}
}

// listPorts lists Jackfield's ports on a vswitch in the node's configuration.
func (t *Attachment) listPorts(ctx context.Context, file, name string) (vswitch.Driver, []vswitch.Port, error) {
	driver, err := t.openSwitch(file, name)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := limitSwitch(ctx, t.Timeout)
	defer cancel()
	ports, err := driver.List(ctx)
	return driver, ports, t.switchError(err)
}

// checkResponding checks that a vswitch responds whose database answers even while the vswitch
// hangs.
func (i *inspection) checkResponding(ctx context.Context, driver vswitch.Driver) error {
	responder, ok := driver.(vswitch.Responder)
	if !ok {
		return nil
	}
	ctx, cancel := limitSwitch(ctx, i.Timeout)
	defer cancel()
	return i.switchError(responder.CheckResponding(ctx))
}

// collectPorts removes the network's ports that are neither in valid nor recorded, because their
// records were lost. A port is recorded before it is created, so collectPorts lists the ports
// before it reads the records.
func (m *removal) collectPorts(ctx context.Context, valid map[record.Key]bool) error {
	if m.Port.Vswitch == "" {
		return nil
	}
	driver, ports, err := m.listPorts(ctx, m.ConfigFile, m.Port.Vswitch)
	if err != nil {
		return err
	}
	var keys []record.Key
	if m.st != nil {
		if keys, err = m.st.Keys(); err != nil {
			return recordError(m.Interface, err)
		}
	}
	var errs []error
	for _, p := range ports {
		o := p.Owner
		key := record.Key{Network: o.Network, ContainerID: o.ContainerID, Interface: o.Interface}
		isRecorded := slices.ContainsFunc(keys, func(k record.Key) bool {
			return k.ContainerID == o.ContainerID && k.Interface == o.Interface
		})
		if o.Network != m.Network || isRecorded || valid[key] {
			continue
		}
		ctx, cancel := limitSwitch(ctx, m.Timeout)
		errs = append(errs, m.switchError(driver.Remove(ctx, o)))
		cancel()
		errs = append(errs, m.releaseUnknownAddresses(key))
	}
	return JoinErrors(errs...)
}

// checkRecordedPort compares the port of a record with the state that the vswitch reports.
// Properties that a vswitch does not report are not compared.
func (i *inspection) checkRecordedPort(ctx context.Context, r *record.Record) error {
	if r.Port == nil {
		return nil
	}
	_, ports, err := i.listPorts(ctx, cmp.Or(r.ConfigFile, config.DefaultPath), r.Switch)
	if err != nil {
		return err
	}
	index := slices.IndexFunc(ports, func(p vswitch.Port) bool { return p.Name == r.Port.Name })
	if index < 0 {
		return Changed("port", "vswitch %q has no port %s", r.Switch, r.Port.Name)
	}
	current, recorded := ports[index], *r.Port
	if o := current.Owner; o.ContainerID != recorded.Owner.ContainerID || o.Interface != recorded.Owner.Interface {
		return Changed("port", "port %s of vswitch %q belongs to interface %q of container %q", recorded.Name, r.Switch,
			o.Interface, o.ContainerID)
	}
	if current.Fault != "" {
		return Changed("port", "port %s of vswitch %q is not usable: %s", recorded.Name, r.Switch,
			diag.Quote(current.Fault))
	}
	recorded.Socket = SocketPath(r.Info) // the vswitch may have chosen it
	for _, f := range []struct {
		key               string
		current, recorded any
		isReported        bool
	}{
		{"socket", current.Socket, recorded.Socket, current.Socket != ""},
		{"bridge", current.Bridge, recorded.Bridge, recorded.Bridge != ""},
		{"mtu", current.MTU, recorded.MTU, current.MTU != 0 && recorded.MTU != 0},
		{"vlan", current.VLAN, recorded.VLAN, true},
		{"queues", current.Queues, recorded.Queues, current.Queues != 0 && recorded.Queues != 0},
		{"rate", wholeKilobits(current.Rate), wholeKilobits(recorded.Rate), recorded.Rate != 0},
	} {
		if f.isReported && f.current != f.recorded {
			return Changed("port", "%s of port %s of vswitch %q is %v: must be %v", f.key, recorded.Name, r.Switch,
				f.current, f.recorded)
		}
	}
	return nil
}

// wholeKilobits rounds a rate in bits a second up to whole kilobits, the resolution of vswitches.
func wholeKilobits(rate uint64) uint64 { return rate/1000*1000 + min(rate%1000, 1)*1000 }

// checkSwitch checks that the network's vswitch responds, and returns the file that configures it.
// If the vswitch is unresponsive and the network has ports on it, existing containers are cut off
// as well.
func (i *inspection) checkSwitch(ctx context.Context) (configFile string, err error) {
	if i.Port.Vswitch == "" {
		return "", nil
	}
	driver, _, err := i.listPorts(ctx, i.ConfigFile, i.Port.Vswitch)
	if err == nil {
		err = i.checkResponding(ctx, driver)
	}
	if err == nil {
		return i.loadedFile, nil
	}
	code, msg := uint(codeUnavailable), "the plugin is not available"
	cutOff, _ := i.findRecord(func(r *record.Record) bool { return r.Switch == i.Port.Vswitch })
	if AsError(err).Code == codeLater && cutOff != nil {
		code, msg = codeLimited, "the plugin is not available, and existing containers have limited connectivity"
	}
	details := messageOf(err)
	if i.loadedFile != "" {
		details += "; the node's configuration is " + i.loadedFile
	}
	return "", Fail(code, msg, "%s", details)
}
