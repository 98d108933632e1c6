// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// delete deletes an interface with its policer, and a memif's socket. VPP keeps the policer of a
// deleted interface, and cannot detach a deleted policer from an interface.
func (c *connection) delete(v *inventory, i *swInterface) error {
	name := formatTag(i.Owner)
	_, policed := v.policers[name]
	if policed = policed && i.Name != ""; policed {
		if err := c.applyPolicer(name, i.index, false); err != nil {
			return err
		}
	}
	if err := c.deleteInterface(i); err != nil || !policed {
		return err
	}
	return c.deletePolicer(name)
}

// deleteInterface deletes an interface, and the socket that a memif has in VPP. A missing object is no error.
func (c *connection) deleteInterface(i *swInterface) error {
	if i.Type == vswitch.VhostUser {
		return ignoreMissing(c.call(deleteVhostUserIf, new(retvalReply), swIfIndexMessage{i.index}),
			retvalInvalidInterface)
	}
	if err := ignoreMissing(c.call(memifDelete, new(retvalReply), swIfIndexMessage{i.index}),
		retvalInvalidInterface); err != nil {
		return err
	}
	return c.deleteMemifSocket(i.memifSocket)
}

func (c *connection) deleteMemifSocket(id uint32) error {
	return ignoreMissing(c.call(memifSocketFilenameAddDel, new(indexReply), memifSocketFilenameMessage{SocketID: id}),
		retvalInvalidArgument)
}

// ignoreMissing returns nil if VPP reports the object as missing, because another process has
// deleted it.
func ignoreMissing(err error, missing int32) error {
	var result *retvalError
	if errors.As(err, &result) && result.retval == missing {
		return nil
	}
	return err
}

// Remove implements vswitch.Driver. VPP does not remove the socket file of a memif, so Remove does.
func (d *Driver) Remove(ctx context.Context, owner vswitch.Owner) error {
	return d.RemoveWithLeftovers(ctx, vswitch.Port{Name: vswitch.PortName(owner), Owner: owner})
}

// RemoveWithLeftovers implements vswitch.LeftoverRemover. A memif receives its tag after its
// creation, and its socket has no tag.
func (d *Driver) RemoveWithLeftovers(ctx context.Context, port vswitch.Port) error {
	return d.explain(port, d.remove(ctx, port))
}

// remove removes the interface of a port, its policer, and its VLAN if no other port uses it.
func (d *Driver) remove(ctx context.Context, port vswitch.Port) error {
	return d.withConnection(ctx, func(c *connection) error {
		v, err := c.readInventory()
		if errdefs.IsNotImplemented(err) {
			// This VPP has another version than the VPP that created the port, so it has restarted
			// and lost its ports.
			return nil
		}
		if err != nil {
			return err
		}
		if current := v.owned(port.Owner); current != nil {
			if err := c.delete(v, current); err != nil {
				return err
			}
			if current.SwitchListens {
				if err := vswitch.RemoveStaleSocket(d.Host, current.Type, current.Socket); err != nil {
					return err
				}
			}
			delete(v.interfaces, current.index)
		} else if _, left := v.policers[formatTag(port.Owner)]; left {
			if err := c.deletePolicer(formatTag(port.Owner)); err != nil {
				return err
			}
		}
		if err := c.removeMemifLeftovers(v, port); err != nil || !v.hasSegments() {
			return err
		}
		return d.removeUnusedSegments(ctx, c)
	})
}

// removeMemifLeftovers deletes the objects that an interrupted creation of the port left: an
// interface without a tag, and sockets without an interface.
func (c *connection) removeMemifLeftovers(v *inventory, port vswitch.Port) error {
	if port.Type != vswitch.Memif || port.Socket == "" {
		return nil
	}
	for _, i := range v.interfaces {
		if i.isLeftoverOf(port) {
			if err := c.delete(v, i); err != nil {
				return err
			}
			delete(v.memifSockets, i.memifSocket)
		}
	}
	for id, path := range v.memifSockets {
		used := slices.ContainsFunc(slices.Collect(maps.Values(v.interfaces)), func(i *swInterface) bool {
			return i.Type == vswitch.Memif && i.memifSocket == id
		})
		if path == port.Socket && !used {
			if err := c.deleteMemifSocket(id); err != nil {
				return err
			}
		}
	}
	return nil
}
