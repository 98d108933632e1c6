// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// This file has the ports of a Remove and of the collection of garbage. A port is removed before its record. If the
// vswitch fails, the record stays, and the next Remove or the reconciler tries again.

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
