// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const maxBridge = 1<<24 - 1

// Driver creates ports on one VPP. It keeps no state. Each call opens its own connection, except in
// a session.
type Driver struct {
	vswitch.Switch
	// Uplink is the VPP interface that carries the ports' VLANs; empty for none.
	Uplink  string
	session *session // nil to connect for each call
}

// Ensure implements vswitch.Driver. VPP creates the socket before it replies, so an interface that
// is up is usable. The port's MAC is not set on VPP, because its bridge domains learn the
// container's address. The application chooses the queues of vhost-user.
func (d *Driver) Ensure(ctx context.Context, port vswitch.Port) (vswitch.Port, error) {
	bridge, err := d.check(port)
	if err != nil {
		return vswitch.Port{}, err
	}
	var got vswitch.Port
	err = d.withConnection(ctx, func(c *connection) error {
		got, err = d.ensure(ctx, c, port, bridge)
		return err
	})
	if err != nil {
		return vswitch.Port{}, d.explain(port, err)
	}
	got.Owner = port.Owner
	return got, nil
}

// ensure creates or changes the interface, and returns the port with VPP's resulting properties. If
// it fails, it removes the objects that it created.
func (d *Driver) ensure(ctx context.Context, c *connection, port vswitch.Port, bridge uint32) (vswitch.Port, error) {
	got, created, err := d.ensureUnlocked(ctx, c, port, bridge)
	if err == nil {
		return got, nil
	}
	// Undo on a new connection, because the failure may be the connection's.
	fresh := *d
	fresh.session = nil
	switch {
	case created:
		err = vswitch.CleanUp(ctx, err, func(ctx context.Context) error { return fresh.remove(ctx, port) })
	case port.VLAN != 0:
		err = vswitch.CleanUp(ctx, err, func(ctx context.Context) error {
			return fresh.withConnection(ctx, func(c *connection) error { return fresh.removeUnusedSegments(ctx, c) })
		})
	}
	return vswitch.Port{}, err
}

// ensureUnlocked holds the lock on VPP's VLANs for a port with a VLAN. created reports that VPP may
// have a new interface.
func (d *Driver) ensureUnlocked(ctx context.Context, c *connection, port vswitch.Port,
	bridge uint32) (got vswitch.Port, created bool, err error) {
	if port.VLAN != 0 {
		unlock, err := d.lockSegments(ctx)
		if err != nil {
			return vswitch.Port{}, false, err
		}
		defer unlock()
	}
	v, err := c.readInventory()
	if err != nil {
		return vswitch.Port{}, false, err
	}
	if err := d.ensureBridge(c, v, port, bridge); err != nil {
		return vswitch.Port{}, false, err
	}
	current := v.owned(port.Owner)
	// VPP cannot change these properties of an interface, so it is re-created.
	if current != nil && !isSameSocket(current.Port, port) {
		if err := c.delete(v, current); err != nil {
			return vswitch.Port{}, false, err
		}
		delete(v.interfaces, current.index)
		delete(v.policers, formatTag(port.Owner))
		current = nil
	}
	// After a failed creation the interface can exist all the same: another process created it, or the reply was lost.
	if current == nil {
		createErr := d.create(c, v, port)
		created = createErr == nil
		current, err = c.findInterface(port.Owner)
		if createErr != nil && current == nil { // another process has not created it either
			return vswitch.Port{}, false, createErr
		}
	}
	if err == nil {
		err = c.configure(v, current, port, bridge)
	}
	if err == nil {
		current, err = c.findInterface(port.Owner)
	}
	if err != nil {
		return vswitch.Port{}, created, err
	}
	return current.Port, created, nil
}

// ensureBridge checks that the port can join its bridge domain, and creates the bridge domain of a
// VLAN.
func (d *Driver) ensureBridge(c *connection, v *inventory, port vswitch.Port, bridge uint32) error {
	if err := c.requireMessages(port.Type); err != nil {
		return err
	}
	if err := d.requirePolicer(c, port); err != nil {
		return err
	}
	if port.VLAN != 0 {
		return d.ensureSegment(c, v, port)
	}
	domain, exists := v.bridges[bridge]
	if s, ok := segmentOf(bridge, domain.tag); exists && ok {
		return d.Refuse(port, "bridge",
			fmt.Sprintf("bridge domain %s is VLAN %d of bridge %s", port.Bridge, s.vlan, s.bridge),
			"name that bridge with that vlan, or another bridge", errdefs.ErrAlreadyExists)
	}
	if port.Bridge != "" && !exists {
		return d.Refuse(port, "bridge", "VPP has no bridge domain "+port.Bridge,
			`create it with "vppctl create bridge-domain `+port.Bridge+
				`", in VPP's startup file as well`, errdefs.ErrNotFound)
	}
	return nil
}

// requireMessages returns an error if VPP lacks a message that creating, finding or deleting a port
// needs. Otherwise a port could be created that cannot be deleted.
func (c *connection) requireMessages(protocol vswitch.Type) error {
	needed := []exchange{createVhostUserIf, swInterfaceVhostUserDump, deleteVhostUserIf}
	if protocol == vswitch.Memif {
		needed = []exchange{memifSocketFilenameAddDel, memifSocketFilenameDump, memifCreate, memifDump, memifDelete,
			swInterfaceTagAddDel}
	}
	for _, e := range append(needed, swInterfaceSetFlags, swInterfaceSetL2Bridge, swInterfaceSetMTU) {
		for _, message := range []string{e.request, e.answer} {
			if !c.knowsMessage(message) {
				return c.missingMessage(message)
			}
		}
	}
	return nil
}

// findInterface returns the current state of the owner's interface, which must exist.
func (c *connection) findInterface(owner vswitch.Owner) (*swInterface, error) {
	v, err := c.readInventory()
	if err != nil {
		return nil, err
	}
	current := v.owned(owner)
	if current == nil {
		err = errdefs.ErrUnavailable.WithMessage("the interface was deleted right after its creation")
	}
	return current, err
}

// joinCleanup adds the error of an incomplete undo to the error that caused it.
func joinCleanup(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	return fmt.Errorf("%w; cannot undo the partial creation: %w", err, cleanup)
}

// isSameSocket compares the properties that VPP cannot change.
func isSameSocket(a, b vswitch.Port) bool {
	return a.Type == b.Type && a.Socket == b.Socket && a.SwitchListens == b.SwitchListens
}

// create creates the interface with its tag.
func (d *Driver) create(c *connection, v *inventory, port vswitch.Port) error {
	for _, i := range v.interfaces {
		if i.Socket != port.Socket {
			continue
		}
		// A memif receives its tag after its creation. An unused memif without a tag is the
		// leftover of an interrupted call, and is adopted.
		if i.isLeftoverOf(port) {
			return c.setTag(i.index, formatTag(port.Owner))
		}
		return d.Refuse(port, "device.path", fmt.Sprintf("another interface of VPP uses the socket %q", port.Socket),
			"delete the interface or choose another path", errdefs.ErrAlreadyExists)
	}
	if port.SwitchListens {
		// VPP unlinks any socket at the path, so this check must exclude the socket of another
		// process.
		if err := vswitch.RemoveStaleSocket(d.Host, port.Type, port.Socket); err != nil {
			return d.Refuse(port, "device.path", err.Error(),
				"remove the file, end the process that uses it, or choose another path", err)
		}
	}
	if port.Type == vswitch.Memif {
		return c.createMemif(port)
	}
	request := createVhostUserIfMessage{IsServer: port.SwitchListens}
	copy(request.Socket[:], port.Socket)
	copy(request.Tag[:], formatTag(port.Owner))
	return c.call(createVhostUserIf, new(indexReply), request)
}

// createMemif creates a memif's socket, which VPP numbers, then the interface and its tag. If it
// fails, it removes both.
func (c *connection) createMemif(port vswitch.Port) (err error) {
	var socket, created indexReply
	name := memifSocketFilenameMessage{IsAdd: true, SocketID: anyIndex, FilenameLength: uint32(len(port.Socket))}
	if err := c.call(memifSocketFilenameAddDel, &socket, name, []byte(port.Socket)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = joinCleanup(err, c.deleteMemifSocket(socket.Index))
		}
	}()
	role := memifSlave
	if port.SwitchListens {
		role = memifMaster
	}
	request := memifCreateMessage{Role: role, SocketID: socket.Index, RxQueues: uint8(port.Queues),
		TxQueues: uint8(port.Queues)}
	if err := c.call(memifCreate, &created, request); err != nil {
		return err
	}
	if err := c.setTag(created.Index, formatTag(port.Owner)); err != nil {
		return joinCleanup(err, c.call(memifDelete, new(retvalReply), swIfIndexMessage{created.Index}))
	}
	return nil
}

func (c *connection) setTag(index uint32, tag string) error {
	request := swInterfaceTagAddDelMessage{IsAdd: true, SwIfIndex: index}
	copy(request.Tag[:], tag)
	return c.call(swInterfaceTagAddDel, new(retvalReply), request)
}

// configure changes the mutable properties of an interface. v is the inventory from before its creation.
func (c *connection) configure(v *inventory, current *swInterface, port vswitch.Port, bridge uint32) error {
	if port.MTU != 0 && current.MTU != port.MTU {
		mtu := current.mtu
		mtu[0] = uint32(port.MTU)
		if err := c.call(swInterfaceSetMTU, new(retvalReply),
			swInterfaceSetMTUMessage{current.index, mtu}); err != nil {
			return err
		}
	}
	if port.Bridge != "" && (current.Bridge != port.Bridge || current.VLAN != port.VLAN) {
		request := swInterfaceSetL2BridgeMessage{SwIfIndex: current.index, BridgeDomain: bridge, Enable: true}
		if err := c.call(swInterfaceSetL2Bridge, new(retvalReply), request); err != nil {
			return err
		}
	}
	// VPP removes the policer from an interface that leaves its bridge domain.
	if err := c.setRate(v, current.index, port); err != nil {
		return err
	}
	if !current.up {
		return c.call(swInterfaceSetFlags, new(retvalReply), swInterfaceSetFlagsMessage{current.index, adminUp})
	}
	return nil
}

// Probe implements vswitch.Driver.
func (d *Driver) Probe(ctx context.Context) error {
	c, err := connect(ctx, d.Socket())
	if err != nil {
		return d.explain(vswitch.Port{}, err)
	}
	c.close()
	return nil
}

// List implements vswitch.Driver.
func (d *Driver) List(ctx context.Context) ([]vswitch.Port, error) {
	var ports []vswitch.Port
	err := d.withConnection(ctx, func(c *connection) error {
		v, err := c.readInventory()
		if err != nil {
			return err
		}
		for _, i := range v.interfaces {
			if i.Name != "" {
				ports = append(ports, i.Port)
			}
		}
		return nil
	})
	slices.SortFunc(ports, func(a, b vswitch.Port) int { return cmp.Compare(a.Name, b.Name) })
	return ports, d.explain(vswitch.Port{}, err)
}

// withConnection runs f with a connection.
func (d *Driver) withConnection(ctx context.Context, f func(*connection) error) error {
	if d.session != nil {
		return d.session.run(f)
	}
	c, err := connect(ctx, d.Socket())
	if err != nil {
		return err
	}
	defer c.close()
	return f(c)
}

// check refuses ports that VPP does not support or that do not fit its messages. It returns the
// number of the bridge domain.
func (d *Driver) check(p vswitch.Port) (bridge uint32, err error) {
	invalid := func(field, message, remedy string) error {
		return d.Refuse(p, field, message, remedy, errdefs.ErrInvalidArgument)
	}
	tag := formatTag(p.Owner)
	number, bridgeErr := strconv.ParseUint(p.Bridge, 10, 32)
	// Each case is a limit of VPP or of the size of a field in its messages.
	switch {
	case p.Name != vswitch.PortName(p.Owner):
		err = invalid("name", "must be "+vswitch.PortName(p.Owner), "name the port for its owner")
	case p.Type != vswitch.VhostUser && p.Type != vswitch.Memif:
		err = d.Refuse(p, "type", "VPP has no ports of type "+diag.Quote(string(p.Type)), "use vhost-user or memif",
			errdefs.ErrNotImplemented)
	case p.Bridge != "" && (bridgeErr != nil || number == 0 || number > maxBridge ||
		strconv.FormatUint(number, 10) != p.Bridge):
		err = invalid("bridge", diag.Quote(p.Bridge)+" is not the number of a bridge domain",
			fmt.Sprintf("use a number from 1 to %d", maxBridge))
	case p.Type == vswitch.Memif && p.Queues > 255:
		err = d.Refuse(p, "queues", "a memif has at most 255", "use fewer queues", errdefs.ErrOutOfRange)
	case len(p.Socket) > hostfs.MaxSocketPath || !strings.HasPrefix(p.Socket, "/") || strings.ContainsRune(p.Socket, 0):
		err = invalid("socketDir", fmt.Sprintf("%s is not an absolute path of at most %d bytes", diag.Quote(p.Socket),
			hostfs.MaxSocketPath), "shorten socketDir or device.path")
	case len(tag) > maxTag:
		err = invalid("containerID", fmt.Sprintf("the tag %s has %d bytes; VPP stores %d", diag.Quote(tag), len(tag),
			maxTag), "use a shorter container ID or interface name")
	}
	if err == nil {
		err = cmp.Or(d.checkVLAN(p), d.checkRate(p))
	}
	if p.VLAN != 0 {
		return segment{p.Bridge, p.VLAN}.domain(), err
	}
	return uint32(number), err
}

// explain converts a negative result into a Refusal, and adds the switch's name to other errors.
func (d *Driver) explain(p vswitch.Port, err error) error {
	var refusal *vswitch.Refusal
	var result *retvalError
	switch {
	case err == nil || errors.As(err, &refusal):
		return err
	case errdefs.IsUnavailable(err):
		return &vswitch.UnavailableError{Switch: d.Name, Endpoint: d.Socket(), Err: err, Down: errors.Is(err, errDown)}
	case errors.As(err, &result):
		field, remedy := fieldOf(result.message), `see "vppctl show logging"`
		if field == "socketDir" {
			remedy = "check that VPP sees this directory at the same path and can write to it; " + remedy
		}
		return d.Refuse(p, field, err.Error(), remedy, result.Unwrap())
	case errdefs.IsNotImplemented(err): // a message
		return d.Refuse(p, "", err.Error(), "load VPP's plugins for vhost-user and memif; Jackfield supports VPP "+
			"23.06 to 26.06", errdefs.ErrNotImplemented)
	}
	return fmt.Errorf("vswitch %q: %w", d.Name, err)
}

// fieldOf returns the configuration key whose value a message transports.
func fieldOf(message string) string {
	// Messages for objects that the driver manages itself have no key.
	switch message {
	case swInterfaceSetMTU.request:
		return "mtu"
	case swInterfaceSetL2Bridge.request:
		return "bridge"
	case bridgeDomainAddDel.request, createVLANSubif.request, deleteSubif.request, l2InterfaceVLANTagRewrite.request:
		return "vlan"
	case policerAddDel.request, policerInput.request:
		return "rate"
	case memifSocketFilenameAddDel.request, memifCreate.request, createVhostUserIf.request:
		return "socketDir"
	}
	return ""
}
