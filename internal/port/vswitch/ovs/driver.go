// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// callTimeout bounds Remove and List, which do not wait for ovs-vswitchd.
	// The database server and ovs-vswitchd are two processes. The server responds to requests even
	// while ovs-vswitchd is down, so a call that depends on ovs-vswitchd increments next_cfg and
	// waits until cur_cfg reaches that number.
	callTimeout = 10 * time.Second
	// ensureTimeout bounds Ensure, which waits until ovs-vswitchd has created the port. It equals
	// the longest timeout that a network can set.
	ensureTimeout = 2 * time.Minute
)

// Driver creates ports on one Open vSwitch. It opens a connection for each call, so a restart of
// the server does not affect it.
type Driver struct {
	vswitch.Switch // Endpoint is the database's socket
	// RunDir is the run directory of ovs-vswitchd on the host, below which it creates sockets. If
	// it is empty, the directory of Endpoint is used.
	RunDir string
}

func (d *Driver) runDir() string { return cmp.Or(d.RunDir, path.Dir(d.Endpoint)) }

// Ensure implements vswitch.Driver.
func (d *Driver) Ensure(ctx context.Context, port vswitch.Port) (vswitch.Port, error) {
	if err := d.checkPort(port); err != nil {
		return vswitch.Port{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	c, disconnect, err := d.connect(ctx)
	if err != nil {
		return vswitch.Port{}, err
	}
	defer disconnect()
	for {
		result, created, err := d.ensureOnce(ctx, c, port)
		if err == nil {
			return result, nil
		}
		if errors.Is(err, errChangedMeanwhile) && ctx.Err() == nil {
			continue
		}
		err = d.explain(ctx, port, err)
		if created {
			err = vswitch.CleanUp(ctx, err, func(ctx context.Context) error { return d.Remove(ctx, port.Owner) })
		}
		return vswitch.Port{}, err
	}
}

// errChangedMeanwhile reports that another program changed a row between the driver's read and
// write.
var errChangedMeanwhile = errors.New("another program keeps changing the port")

// ensureOnce reads the port's rows, writes the differences, and waits for ovs-vswitchd. created
// reports whether it may have created the port.
func (d *Driver) ensureOnce(ctx context.Context, c *connection, port vswitch.Port) (result vswitch.Port, created bool,
	err error) {
	s, err := readState(c, port)
	if err == nil {
		err = d.checkState(s, port)
	}
	if err != nil {
		return vswitch.Port{}, false, err
	}
	result = d.portOf(desiredPort(port), desiredInterface(port), port.Bridge, s.system)
	result.Owner = port.Owner
	if port.SwitchListens {
		if err := d.clearSocketPath(s, result); err != nil {
			return vswitch.Port{}, false, err
		}
	}
	operations, created := planChanges(s, port)
	if s.port == nil || len(operations) > 0 || !s.iface.usable() {
		if err := d.commit(ctx, c, port, operations); err != nil {
			return vswitch.Port{}, created, err
		}
	}
	return result, created, nil
}

// clearSocketPath removes the socket of a killed ovs-vswitchd at the path where the new one creates
// its socket, because DPDK cannot bind to an existing path.
//
// After one failed attempt DPDK keeps a closed descriptor for the path. Every further attempt of
// this ovs-vswitchd fails and closes an unrelated descriptor, and every change of the database
// triggers an attempt. clearSocketPath then requests a restart instead.
func (d *Driver) clearSocketPath(s *state, port vswitch.Port) error {
	failed := s.iface != nil && s.iface.Error.first() != "" && s.system.DPDKInitialized
	if s.port != nil && !failed {
		return nil // ovs-vswitchd has created the socket or is about to
	}
	if err := vswitch.RemoveStaleSocket(d.Host, port.Type, port.Socket); err != nil {
		return d.Refuse(port, "", err.Error(), "remove the file, or end the process that uses it", err)
	}
	if failed {
		return d.Refuse(port, "", fmt.Sprintf("ovs-vswitchd could not create the socket %q: %s", port.Socket,
			diag.Excerpt(s.iface.Error.first(), diag.MaxExcerpt)),
			"restart Open vSwitch; the socket that it left behind when it was "+
				"killed is removed", errdefs.ErrFailedPrecondition)
	}
	return nil
}

// commit applies the changes and returns once the port is usable.
func (d *Driver) commit(ctx context.Context, c *connection, port vswitch.Port, operations []operation) error {
	number, err := requestProcessing(c, operations...)
	if isTimeout(err) {
		return errChangedMeanwhile // the first operation waits for the state that was read
	}
	if err != nil {
		return err
	}
	return d.waitUsable(ctx, c, port, number)
}

// requestProcessing applies the changes, and returns the number of the configuration that contains
// them.
func requestProcessing(c *connection, operations ...operation) (number int64, err error) {
	results, err := c.transact(append(operations,
		mutateRows("Open_vSwitch", [][3]any{{"next_cfg", "+=", 1}}),
		selectRows("Open_vSwitch", []string{"next_cfg"}))...)
	if err != nil {
		return 0, err
	}
	system, err := parseRow[systemRow](results[len(results)-1].Rows)
	if err == nil && system == nil {
		err = errEmptyDatabase
	}
	if err != nil {
		return 0, err
	}
	return system.NextConfig, nil
}

// waitProcessed waits until ovs-vswitchd has processed the configuration with the given number. It
// returns the results of the following operations.
func waitProcessed(ctx context.Context, c *connection, number int64, then ...operation) ([]*operationResult, error) {
	end, _ := ctx.Deadline()
	// The server's timeout ends before ctx, so that the connection stays usable.
	timeout := time.Until(end) * 9 / 10
	wait := operation{"op": "wait", "table": "Open_vSwitch", "timeout": max(timeout.Milliseconds(), 0),
		"where": where(condition{"cur_cfg", ">=", number}), "columns": []string{"cur_cfg"},
		"until": "!=", "rows": []any{}}
	results, err := c.transact(append([]operation{wait}, then...)...)
	if isTimeout(err) {
		return nil, fmt.Errorf("ovs-vswitchd has not processed the change within %v; check that it runs",
			timeout.Round(time.Second))
	}
	if err != nil {
		return nil, err
	}
	return results[1:], nil
}

// CheckResponding implements vswitch.Responder. A response of the database server proves nothing
// about ovs-vswitchd, so it waits until ovs-vswitchd has processed a new configuration number.
func (d *Driver) CheckResponding(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, disconnect, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	number, err := requestProcessing(c)
	if err == nil {
		_, err = waitProcessed(ctx, c, number)
	}
	if err != nil {
		return d.unavailable(ctx, err)
	}
	return nil
}

// waitUsable waits until ovs-vswitchd has processed the configuration with the given number. It
// returns an error if ovs-vswitchd reports the interface as unusable.
func (d *Driver) waitUsable(ctx context.Context, c *connection, port vswitch.Port, number int64) error {
	results, err := waitProcessed(ctx, c, number,
		selectRows("Interface", interfaceColumns, condition{"name", "==", port.Name}),
		selectRows("Open_vSwitch", systemColumns))
	if err != nil {
		return err
	}
	iface, err1 := parseRow[interfaceRow](results[0].Rows)
	system, err2 := parseRow[systemRow](results[1].Rows)
	switch err := cmp.Or(err1, err2); {
	case err != nil:
		return err
	case iface == nil || system == nil:
		return errChangedMeanwhile
	case !iface.usable():
		return d.refuseUnusable(port, iface, system)
	}
	return nil
}

// Remove implements vswitch.Driver. It does not wait for ovs-vswitchd, which can be down
// permanently.
func (d *Driver) Remove(ctx context.Context, owner vswitch.Owner) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, disconnect, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	if err := removePort(c, owner); err != nil {
		return d.explain(ctx, vswitch.Port{Name: vswitch.PortName(owner), Owner: owner}, err)
	}
	return nil
}

// removePort removes all ports of an owner from all bridges.
func removePort(c *connection, owner vswitch.Owner) error {
	results, err := c.transact(selectRows("Port", []string{"_uuid"},
		condition{"external_ids", "includes", stringMap{managedKey: "true", ownerKey: ownerID(owner)}}))
	if err != nil {
		return err
	}
	rows, err := parseRows[portRow](results[0].Rows)
	if err != nil || len(rows) == 0 {
		return err
	}
	var ports set[uuid]
	for _, row := range rows {
		ports = append(ports, row.UUID)
	}
	// The server garbage-collects rows of ports and interfaces that no bridge references.
	_, err = c.transact(mutateRows("Bridge", [][3]any{{"ports", "delete", ports}}))
	return err
}

// Probe implements vswitch.Driver.
func (d *Driver) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, disconnect, err := d.connect(ctx)
	if err == nil {
		disconnect()
	}
	return err
}

// List implements vswitch.Driver.
func (d *Driver) List(ctx context.Context) ([]vswitch.Port, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, disconnect, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer disconnect()
	ports, err := d.listPorts(c)
	if err != nil {
		return nil, d.unavailable(ctx, err)
	}
	return ports, nil
}

// listPorts returns all ports with Jackfield's mark, sorted by name. A port without an owner in its external_ids was
// not created by this driver.
func (d *Driver) listPorts(c *connection) ([]vswitch.Port, error) {
	v, err := readContents(c, condition{"external_ids", "includes", stringMap{managedKey: "true"}})
	if err != nil {
		return nil, err
	}
	if v.system == nil {
		v.system = &systemRow{}
	}
	interfaces := map[uuid]interfaceRow{}
	for _, row := range v.interfaces {
		interfaces[row.UUID] = row
	}
	bridges := map[uuid]string{}
	for _, b := range v.bridges {
		for _, port := range b.Ports {
			bridges[port] = b.Name
		}
	}
	ports := []vswitch.Port{}
	for _, row := range v.ports {
		if _, ok := ownerOf(row.ExternalIDs); !ok {
			continue
		}
		ports = append(ports, d.portOf(row, interfaces[row.Interfaces.first()], bridges[row.UUID], *v.system))
	}
	slices.SortFunc(ports, func(a, b vswitch.Port) int { return cmp.Compare(a.Name, b.Name) })
	return ports, nil
}
