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
	// DefaultTimeout is that of an attachment whose network does not give any. The reconciler of the NRI plugin
	// repairs what a vswitch that hangs has left.
	DefaultTimeout = 10 * time.Second
	// MinTimeout and MaxTimeout are the bounds of Attachment.Timeout.
	MinTimeout, MaxTimeout = 3 * time.Second, 2 * time.Minute
	// undoTime is the end of an Add's time, in which what was created too late is removed.
	undoTime = 2 * time.Second
)

// LimitTime returns a context that ends when an Add of the attachment has to. Without a port it has no limit.
func (t *Attachment) LimitTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.Port.Vswitch == "" {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, cmp.Or(t.Timeout, DefaultTimeout))
}

// limitCreation returns a context for what an Add creates. Its end leaves time to undo that.
func limitCreation(ctx context.Context) (context.Context, context.CancelFunc) {
	end, isLimited := ctx.Deadline()
	if !isLimited {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-undoTime))
}

// limitSwitch returns a context for the work on a vswitch in one operation.
func (t *Attachment) limitSwitch(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(t.Timeout, DefaultTimeout))
}

// loadNodeConfig loads the node's configuration and returns a vswitch in it.
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

// switchError returns an error of a vswitch with its code.
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

// portOwner returns the owner of an attachment's port. Its first two fields alone identify the port.
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

// findBridge returns the node's configuration, and in it the vswitch and the bridge of the attachment's port.
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

// planPort plans the attachment's port and asks the policy for it.
func (t *Attachment) planPort(a *addPlan) error {
	p := &t.Port
	if p.Vswitch == "" {
		return nil
	}
	if path := SocketPath(a.before); path != "" && a.record.Directory == "" {
		return t.Invalid("vswitch", diag.Quote(p.Vswitch),
			"no vswitch, because the device plugin's device-info names the allocated port's socket, "+diag.Quote(path)+
				": remove vswitch from the configuration, or resourceName from the network's definition")
	}
	cfg, v, bridge, err := t.findBridge()
	if err != nil {
		return err
	}
	if a.driver, err = t.openDriver(v); err != nil {
		return err
	}
	if a.policy, err = cfg.CompilePolicy(""); err != nil {
		return Fail(codeConfig, "the node's configuration is invalid", "%v", err)
	}
	if _, err := a.policy.Port(t.subject(), policy.Port{Switch: v.Name, Bridge: bridge, VLAN: p.VLAN}); err != nil {
		return Fail(CodeDenied, "the node's policy denies port "+v.Name+"/"+bridge, "%v", err)
	}
	owner := portOwner(t.Key)
	owner.Namespace, owner.Pod = t.Namespace, t.Pod
	a.port = &vswitch.Port{
		Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.Type(t.Device.Kind), Socket: a.socket,
		SwitchListens: t.Device.hostCreates(),
		Bridge:        bridge, MAC: t.MAC, MTU: cmp.Or(p.MTU, v.Defaults.MTU), VLAN: p.VLAN,
		Queues: cmp.Or(p.Queues, v.Defaults.Queues),
		Rate:   cmp.Or(p.Rate, t.Bandwidth["egressRate"]),
	}
	return nil
}

// subject is the pod of the attachment as the subject of policy.
func (t *Attachment) subject() policy.Subject {
	return policy.Subject{Namespace: t.Namespace, Pod: t.Pod}
}

// recordPort records the port if the policy lets the pod have one more. Counting and recording are under one lock, so
// that two ADDs at the same time cannot both get the last port.
func (t *Attachment) recordPort(ctx context.Context, st *record.Store, a *addPlan) error {
	if a.policy.HasPortLimits(t.subject()) {
		end, _ := ctx.Deadline() // Add sets one
		unlock, err := st.Lock(time.Until(end))
		if err != nil {
			return t.recordError(err)
		}
		defer unlock()
		others, err := st.CountPorts(t.Key)
		if err != nil {
			return t.recordError(err)
		}
		if refused, _ := a.policy.LimitPorts(t.subject(), others); refused != nil {
			return Fail(CodeDenied, "the node's policy limits the ports of the pod", "%v", refused)
		}
	}
	a.record.Switch, a.record.ConfigFile, a.record.Port = t.Port.Vswitch, t.ConfigFile, a.port
	return t.recordError(st.Update(&a.record))
}

// createPort records the port with its addresses, and creates it. The plan then has the port as the vswitch
// reports it.
func (t *Attachment) createPort(ctx context.Context, st *record.Store, a *addPlan, addresses Addresses) error {
	a.port.Addresses = addresses.IPs
	if err := t.recordPort(ctx, st, a); err != nil {
		return err
	}
	t.reportStep("port recorded")
	unlock, err := t.lockPort(ctx, st, &a.record)
	if err != nil {
		return err
	}
	defer unlock()
	got, err := a.driver.Ensure(ctx, *a.port)
	t.unreached = vswitch.IsDown(err)
	if err != nil {
		return t.switchError(err)
	}
	t.reportStep("port created")
	a.port = &got
	if got.Socket == a.socket {
		return nil
	}
	// The vswitch decides where its sockets are.
	if err := t.checkLength(got.Socket); err != nil {
		return err
	}
	a.socket = got.Socket
	setSocket(a.record.Info, got.Socket)
	return t.recordError(st.Update(&a.record))
}

// lockPort takes the lock of a record with a port, so that the reconciler of the NRI plugin does not create the
// port while it is being removed.
func (t *Attachment) lockPort(ctx context.Context, st *record.Store, r *record.Record) (unlock func(), err error) {
	if r.Port == nil {
		return func() {}, nil
	}
	end, _ := ctx.Deadline() // each caller sets one
	unlock, err = st.LockRecord(r.Key, time.Until(end))
	if err != nil {
		return nil, t.recordError(err)
	}
	if unlock == nil {
		return nil, Fail(codeLater, "try again later", "another process has changed or removed record %q meanwhile",
			r.FileName())
	}
	return unlock, nil
}

// removePort removes the port of a record. While it fails, the record has to stay.
func (t *Attachment) removePort(ctx context.Context, r *record.Record) error {
	if r.Port == nil {
		return nil
	}
	driver, forgets, err := t.openRecordedSwitch(r)
	if err != nil {
		e := AsError(err)
		return Fail(e.Code, e.Msg, "%s; port %s stays on vswitch %q: put the vswitch back into the node's "+
			"configuration, or remove the port yourself and then the record %s",
			e.Details, r.Port.Name, r.Switch, path.Join(t.StateDir, r.FileName()))
	}
	err = vswitch.RemovePort(ctx, driver, *r.Port)
	if vswitch.IsDown(err) && (forgets || t.unreached) {
		return nil // no port can exist
	}
	return t.switchError(err)
}

// openRecordedSwitch returns the driver of a record's vswitch, and whether that vswitch forgets its ports when it ends.
// Open vSwitch keeps them in its database.
func (t *Attachment) openRecordedSwitch(r *record.Record) (driver vswitch.Driver, forgets bool, err error) {
	_, v, err := t.loadNodeConfig(cmp.Or(r.ConfigFile, config.DefaultPath), r.Switch)
	if err != nil {
		return nil, false, err
	}
	driver, err = t.openDriver(v)
	return driver, v.Type != config.VswitchOVS, err
}

// unrecordedTime bounds the search for the port of an attachment without a record. There is none, unless the record was
// lost.
const unrecordedTime = 2 * time.Second

// removeUnrecordedPort removes the port of an attachment that has no record, and no other record of its interface. If
// that fails, it is only reported: an Add that requested a port has a record.
func (t *Attachment) removeUnrecordedPort(ctx context.Context, st *record.Store, key record.Key) {
	if t.Port.Vswitch == "" {
		return
	}
	if st != nil {
		keys, err := st.Keys()
		if err != nil || slices.ContainsFunc(keys,
			func(k record.Key) bool { return k.ContainerID == key.ContainerID && k.Interface == key.Interface }) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, unrecordedTime)
	defer cancel()
	driver, err := t.openSwitch(t.ConfigFile, t.Port.Vswitch)
	if err == nil {
		err = t.switchError(driver.Remove(ctx, portOwner(key)))
	}
	if err != nil {
		fmt.Fprintf(t.Log, "%s: the attachment has no record, so no port of it should exist; cannot check "+
			"vswitch %q: %v\n", t.Program, t.Port.Vswitch, err)
	}
}

// listPorts lists Jackfield's ports on a vswitch in the node's configuration.
func (t *Attachment) listPorts(ctx context.Context, file, name string) (vswitch.Driver, []vswitch.Port, error) {
	driver, err := t.openSwitch(file, name)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := t.limitSwitch(ctx)
	defer cancel()
	ports, err := driver.List(ctx)
	return driver, ports, t.switchError(err)
}

// checkResponding checks a switch of which the list of ports does not show that it works.
func (t *Attachment) checkResponding(ctx context.Context, driver vswitch.Driver) error {
	responder, ok := driver.(vswitch.Responder)
	if !ok {
		return nil
	}
	ctx, cancel := t.limitSwitch(ctx)
	defer cancel()
	return t.switchError(responder.CheckResponding(ctx))
}

// collectPorts removes the network's ports that are not in valid and have no record: their record was lost. A
// port is recorded before it is created, so the ports are listed first.
func (t *Attachment) collectPorts(ctx context.Context, st *record.Store, valid map[record.Key]bool) error {
	if t.Port.Vswitch == "" {
		return nil
	}
	driver, ports, err := t.listPorts(ctx, t.ConfigFile, t.Port.Vswitch)
	if err != nil {
		return err
	}
	var keys []record.Key
	if st != nil {
		if keys, err = st.Keys(); err != nil {
			return t.recordError(err)
		}
	}
	var errs []error
	for _, p := range ports {
		o := p.Owner
		isRecorded := slices.ContainsFunc(keys, func(k record.Key) bool {
			return k.ContainerID == o.ContainerID && k.Interface == o.Interface
		})
		if o.Network != t.Network || isRecorded ||
			valid[record.Key{Network: o.Network, ContainerID: o.ContainerID, Interface: o.Interface}] {
			continue
		}
		ctx, cancel := t.limitSwitch(ctx)
		errs = append(errs, t.switchError(driver.Remove(ctx, o)))
		cancel()
		errs = append(errs, t.releaseUnknownAddresses(record.Key{Network: o.Network, ContainerID: o.ContainerID,
			Interface: o.Interface}))
	}
	return JoinErrors(errs...)
}

// checkRecordedPort compares the port of a record with what the vswitch reports. A vswitch does not report every
// property.
func (t *Attachment) checkRecordedPort(ctx context.Context, r *record.Record) error {
	if r.Port == nil {
		return nil
	}
	_, ports, err := t.listPorts(ctx, cmp.Or(r.ConfigFile, config.DefaultPath), r.Switch)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(ports, func(p vswitch.Port) bool { return p.Name == r.Port.Name })
	if at < 0 {
		return Changed("port", "vswitch %q has no port %s", r.Switch, r.Port.Name)
	}
	have, want := ports[at], *r.Port
	if have.Owner.ContainerID != want.Owner.ContainerID || have.Owner.Interface != want.Owner.Interface {
		return Changed("port", "port %s of vswitch %q belongs to interface %q of container %q", want.Name, r.Switch,
			have.Owner.Interface, have.Owner.ContainerID)
	}
	if have.Fault != "" {
		return Changed("port", "port %s of vswitch %q is not usable: %s", want.Name, r.Switch, diag.Quote(have.Fault))
	}
	want.Socket = SocketPath(r.Info) // the vswitch may have chosen it
	for _, f := range []struct {
		key        string
		have, want any
		reported   bool
	}{
		{"socket", have.Socket, want.Socket, have.Socket != ""},
		{"bridge", have.Bridge, want.Bridge, want.Bridge != ""},
		{"mtu", have.MTU, want.MTU, have.MTU != 0 && want.MTU != 0},
		{"vlan", have.VLAN, want.VLAN, true},
		{"queues", have.Queues, want.Queues, have.Queues != 0 && want.Queues != 0},
		{"rate", wholeKilobits(have.Rate), wholeKilobits(want.Rate), want.Rate != 0},
	} {
		if f.reported && f.have != f.want {
			return Changed("port", "%s of port %s of vswitch %q is %v: must be %v", f.key, want.Name, r.Switch, f.have,
				f.want)
		}
	}
	return nil
}

// wholeKilobits rounds a rate up to a number of kilobits a second, as vswitches do.
func wholeKilobits(rate uint64) uint64 { return rate/1000*1000 + min(rate%1000, 1)*1000 }

// checkSwitch checks that the network's vswitch answers, and returns the file that configures it. If it does not answer
// and the network has ports on it, existing containers are cut off, too.
func (t *Attachment) checkSwitch(ctx context.Context) (configFile string, err error) {
	if t.Port.Vswitch == "" {
		return "", nil
	}
	driver, _, err := t.listPorts(ctx, t.ConfigFile, t.Port.Vswitch)
	if err == nil {
		err = t.checkResponding(ctx, driver)
	}
	if err == nil {
		return t.loadedFile, nil
	}
	code, msg := uint(codeUnavailable), "the plugin is not available"
	cutOff, _ := t.findRecord(func(r *record.Record) bool { return r.Switch == t.Port.Vswitch })
	if AsError(err).Code == codeLater && cutOff != nil {
		code, msg = codeLimited, "the plugin is not available, and existing containers have limited connectivity"
	}
	details := messageOf(err)
	if t.loadedFile != "" {
		details += "; the node's configuration is " + t.loadedFile
	}
	return "", Fail(code, msg, "%s", details)
}
