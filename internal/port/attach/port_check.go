// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// This file has the port of a Check, and the vswitch of a Status. Neither changes anything on the vswitch.

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
