// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// The datapath accepts frames of 9728 bytes, including Ethernet header, two VLAN tags and
	// checksum. It ignores a larger MTU and reports that only in its log.
	minMTU, maxMTU = 68, 9702
	maxVLAN        = 4094
)

// errEmptyDatabase is the error for a database that was never initialised.
var errEmptyDatabase = errors.New(
	`the database is empty; run "ovs-vsctl init" or start Open vSwitch with its own service`)

// checkPort refuses ports that Open vSwitch cannot create or would silently change.
func (d *Driver) checkPort(p vswitch.Port) error {
	invalid := func(field, message, remedy string) error {
		return d.Refuse(p, field, message, remedy, errdefs.ErrInvalidArgument)
	}
	socket := p.Socket
	if p.SwitchListens {
		socket = d.runDir() + "/" + p.Name
	}
	// Each case is a limit of Open vSwitch that the transaction itself would not report.
	switch {
	case p.Type == vswitch.Memif:
		return invalid("type", "Open vSwitch has no memif ports", "use vhost-user, or a vswitch of type grout or vpp")
	case p.Type != vswitch.VhostUser:
		return invalid("type", "invalid value "+diag.Quote(string(p.Type)), "use vhost-user")
	case p.Bridge == "":
		return invalid("bridge", "missing", "name a bridge with datapath_type netdev")
	case socket == "" || socket[0] != '/' || strings.ContainsRune(socket, 0):
		return invalid("socket", "invalid value "+diag.Quote(socket), "use an absolute path")
	case len(socket) > hostfs.MaxSocketPath:
		return invalid("socket", fmt.Sprintf("the path %s has %d bytes", diag.Quote(socket), len(socket)),
			fmt.Sprintf("use a path of at most %d bytes", hostfs.MaxSocketPath))
	case p.MTU != 0 && (p.MTU < minMTU || p.MTU > maxMTU):
		return invalid("mtu", fmt.Sprintf("invalid value %d", p.MTU),
			fmt.Sprintf("use an MTU from %d to %d", minMTU, maxMTU))
	case p.VLAN < 0 || p.VLAN > maxVLAN:
		return invalid("vlan", fmt.Sprintf("invalid value %d", p.VLAN), fmt.Sprintf("use a VLAN from 1 to %d", maxVLAN))
	}
	return nil
}

// checkState refuses bridges without DPDK's datapath, and ports that do not belong to the owner.
func (d *Driver) checkState(s *state, p vswitch.Port) error {
	if s.bridge == nil {
		remedy := fmt.Sprintf("run `ovs-vsctl add-br %s -- set bridge %s datapath_type=netdev`", p.Bridge, p.Bridge)
		if names := usableBridges(s.bridges); len(names) > 0 {
			remedy += " or name one of " + strings.Join(names, ", ")
		}
		return d.Refuse(p, "bridge", fmt.Sprintf("there is no bridge %s", diag.Quote(p.Bridge)), remedy,
			errdefs.ErrNotFound)
	}
	if s.bridge.DatapathType != "netdev" {
		return d.Refuse(p, "bridge", fmt.Sprintf("bridge %s has datapath_type %s, not netdev", diag.Quote(p.Bridge),
			diag.Quote(s.bridge.DatapathType)),
			fmt.Sprintf("run `ovs-vsctl set bridge %s datapath_type=netdev` or name another bridge",
				p.Bridge), errdefs.ErrFailedPrecondition)
	}
	if s.port == nil && s.iface == nil {
		return nil
	}
	taken := func(by string) error {
		return d.Refuse(p, "", "the name is taken by "+by,
			fmt.Sprintf("remove it with `ovs-vsctl del-port %s` if nothing uses it", p.Name), errdefs.ErrAlreadyExists)
	}
	if s.port == nil {
		return taken("an interface of another port")
	}
	owner, ours := ownerOf(s.port.ExternalIDs)
	switch {
	case !ours:
		return taken("a port that Jackfield did not create")
	case ownerID(owner) != ownerID(p.Owner):
		return taken(fmt.Sprintf("the port of container %s, interface %s", diag.Quote(owner.ContainerID),
			diag.Quote(owner.Interface)))
	}
	return nil
}

// usableBridges returns the names of up to eight bridges with DPDK's datapath, for the remedy.
func usableBridges(bridges []bridgeRow) []string {
	var names []string
	for _, b := range bridges {
		if b.DatapathType == "netdev" {
			names = append(names, diag.Plain(b.Name))
		}
	}
	slices.Sort(names)
	return names[:min(len(names), 8)]
}

// refuseUnusable returns the error for an interface that ovs-vswitchd could not create. A missing
// DPDK explains every further error, so it comes first.
func (d *Driver) refuseUnusable(p vswitch.Port, iface *interfaceRow, system *systemRow) error {
	field, message, remedy := "vswitches."+d.Name, "ovs-vswitchd assigned no number to the port", ""
	if text := iface.Error.first(); text != "" {
		message = diag.Excerpt(text, diag.MaxExcerpt)
	}
	switch {
	case !system.DPDKInitialized:
		message = "DPDK is not initialised: " + message
		remedy = "run `ovs-vsctl set Open_vSwitch . other_config:dpdk-init=true` and check the log of ovs-vswitchd"
	case !slices.Contains(system.InterfaceTypes, iface.Type):
		message = fmt.Sprintf("this ovs-vswitchd has no interfaces of type %s: %s", iface.Type, message)
		remedy = "install Open vSwitch with DPDK and its vhost library"
	default:
		field, remedy = "", "check the log of ovs-vswitchd"
	}
	return d.Refuse(p, field, message, remedy, errdefs.ErrFailedPrecondition)
}

// explain adds a remedy to an error, by its kind.
func (d *Driver) explain(ctx context.Context, p vswitch.Port, err error) error {
	var refusal *vswitch.Refusal
	var refused *databaseError
	var failed *rpcError
	switch {
	case errors.As(err, &refusal):
		return err
	case errors.Is(err, errChangedMeanwhile):
		return d.Refuse(p, "", err.Error(), "find the program in the log of ovsdb-server", errdefs.ErrAborted)
	case errors.As(err, &refused), errors.As(err, &failed):
		return d.Refuse(p, "", err.Error(), "check the version of Open vSwitch; Jackfield needs 2.11 or later",
			errdefs.ErrFailedPrecondition)
	}
	return d.unavailable(ctx, err)
}
