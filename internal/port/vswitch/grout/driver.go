// SPDX-License-Identifier: Apache-2.0

package grout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// maxVhostQueues is DPDK's limit of queue pairs.
const maxVhostQueues = 128

// Driver creates ports on one grout. It keeps no state. All fields are required.
type Driver struct {
	vswitch.Switch
	// Grcli is the program: a path, or a name to look up in PATH.
	Grcli string
}

// Ensure implements vswitch.Driver. grout creates the socket before it responds, so an existing
// port is usable. The port's MAC is not set on grout, because its bridges learn the container's
// address.
func (d *Driver) Ensure(ctx context.Context, port vswitch.Port) (vswitch.Port, error) {
	if err := d.check(port); err != nil {
		return vswitch.Port{}, err
	}
	names := []string{port.Name}
	if port.Bridge != "" {
		names = append(names, port.Bridge)
	}
	found, err := d.show(ctx, names...)
	if err != nil {
		return vswitch.Port{}, err
	}
	if port.Bridge != "" && found[port.Bridge].Type != "bridge" {
		return vswitch.Port{}, d.Refuse(port, "bridge", "grout has no bridge "+diag.Quote(port.Bridge),
			`create it with "grcli interface add bridge `+port.Bridge+
				`", in grout's startup file as well`, errdefs.ErrNotFound)
	}
	current, exists := found[port.Name]
	if exists && !isOwned(current, port.Owner) {
		return vswitch.Port{}, d.Refuse(port, "", "grout has an interface of this name that is not the port's",
			"rename or delete the interface", errdefs.ErrAlreadyExists)
	}
	if exists && current.Devargs != formatDevargs(port) {
		// grout cannot change the device of a port, so the port is re-created.
		if err := d.delete(ctx, port.Name); err != nil {
			return vswitch.Port{}, err
		}
		exists = false
	}
	if !exists {
		current, err = d.create(ctx, port)
	} else if changes := compareAttributes(current, port); changes != "" {
		current, _, err = d.change(ctx, port, "interface set port "+port.Name+changes)
	}
	if err != nil {
		return vswitch.Port{}, err
	}
	got, err := newPort(current)
	got.Owner = port.Owner
	return got, err
}

// create adds the port's interface, and deletes it if grout has not configured it as requested.
func (d *Driver) create(ctx context.Context, port vswitch.Port) (netInterface, error) {
	if port.SwitchListens {
		// A killed grout leaves its sockets behind, and DPDK cannot bind to an existing path.
		if err := vswitch.RemoveStaleSocket(d.Host, port.Type, port.Socket); err != nil {
			return d.findCreated(ctx, port, d.Refuse(port, "device.path", err.Error(),
				"remove the file, end the process that uses it, or choose another path", err))
		}
	}
	current, created, err := d.change(ctx, port, "interface add port "+port.Name+" devargs "+formatDevargs(port)+
		compareAttributes(netInterface{}, port)+" description "+formatOwner(port.Owner))
	switch {
	case err == nil:
		return current, nil
	case created:
		return netInterface{}, vswitch.CleanUp(ctx, err,
			func(ctx context.Context) error { return d.delete(ctx, port.Name) })
	}
	return d.findCreated(ctx, port, err)
}

// findCreated returns the port if another process created it in the meantime, or the error.
func (d *Driver) findCreated(ctx context.Context, port vswitch.Port, err error) (netInterface, error) {
	found, showErr := d.show(ctx, port.Name)
	if current := found[port.Name]; showErr == nil && isOwned(current, port.Owner) &&
		current.Devargs == formatDevargs(port) &&
		compareAttributes(current, port) == "" {
		return current, nil
	}
	return netInterface{}, err
}

// change runs a command and returns the resulting interface. done reports that grout executed the
// command.
func (d *Driver) change(ctx context.Context, port vswitch.Port, command string) (current netInterface, done bool,
	err error) {
	lines, failed, err := d.runGrcli(ctx, false, command, "interface show name "+port.Name)
	if err != nil {
		return netInterface{}, false, err
	}
	if len(failed) > 0 {
		return netInterface{}, false, d.explain(port, failed[0])
	}
	found, err := d.parseInterfaces(lines)
	if err != nil {
		return netInterface{}, true, err
	}
	// grcli accepts abbreviated names, so the result is compared with the request.
	current = found[port.Name]
	if missing := compareAttributes(current, port); current.Name == "" || missing != "" {
		return netInterface{}, true, d.Refuse(port, "",
			"the command succeeded, but the interface still lacks"+diag.Excerpt(missing, diag.MaxQuoted),
			"see grout's log", errdefs.ErrUnknown)
	}
	return current, true, nil
}

// compareAttributes returns grcli's arguments that change the interface to the port's description, or "".
func compareAttributes(current netInterface, port vswitch.Port) string {
	var changes string
	if !slices.Contains(current.Flags, "up") {
		changes += " up"
	}
	if port.MTU != 0 && current.MTU != port.MTU {
		changes += " mtu " + strconv.Itoa(port.MTU)
	}
	if port.Bridge != "" && (current.Mode != "bridge" || current.Domain != port.Bridge) {
		changes += " domain " + port.Bridge
	}
	if port.Queues != 0 && current.Queues != port.Queues {
		changes += " rxqs " + strconv.Itoa(port.Queues)
	}
	return changes
}

// Remove implements vswitch.Driver.
func (d *Driver) Remove(ctx context.Context, owner vswitch.Owner) error {
	name := vswitch.PortName(owner)
	found, err := d.show(ctx, name)
	if err != nil || !isOwned(found[name], owner) {
		return err
	}
	return d.delete(ctx, name)
}

// delete deletes an interface. A missing interface (ENODEV) is no error.
func (d *Driver) delete(ctx context.Context, name string) error {
	_, failed, err := d.runGrcli(ctx, false, "interface del "+name)
	if err == nil && len(failed) > 0 && !failed[0].is(unix.ENODEV) {
		err = d.unknown("delete interface %q: %v", name, failed[0])
	}
	return err
}

// Probe implements vswitch.Driver.
func (d *Driver) Probe(ctx context.Context) error {
	if _, err := os.Stat(d.Grcli); err != nil {
		return d.cannotRun(err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := vswitch.Dial(ctx, d.Socket())
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("connect: timed out")
		}
		return &vswitch.UnavailableError{Switch: d.Name, Endpoint: d.Socket(), Err: err, Down: ctx.Err() == nil &&
			vswitch.IsNotListening(err)}
	}
	return conn.Close()
}

// List implements vswitch.Driver. The table of all interfaces truncates long descriptions, so List
// reads Jackfield's interfaces a second time, one by one.
func (d *Driver) List(ctx context.Context) ([]vswitch.Port, error) {
	lines, failed, err := d.runGrcli(ctx, false, "interface show type port")
	if err != nil {
		return nil, err
	}
	if len(failed) > 0 {
		return nil, d.unknown("list interfaces: %v", failed[0])
	}
	var all []netInterface
	if table := bytes.Join(lines, []byte("\n")); json.Unmarshal(table, &all) != nil {
		return nil, d.garbage(table)
	}
	var names []string
	for _, i := range all {
		if name.IsPort(i.Name) {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	found, err := d.show(ctx, names...)
	if err != nil {
		return nil, err
	}
	var ports []vswitch.Port
	for _, name := range slices.Sorted(maps.Keys(found)) {
		owner, ok := parseOwner(found[name].Description)
		if !ok || !isOwned(found[name], owner) {
			continue
		}
		port, err := newPort(found[name])
		if err != nil {
			return nil, fmt.Errorf("vswitch %q: interface %q: %w", d.Name, name, err)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// isOwned reports whether both name and description of an interface belong to the owner.
func isOwned(i netInterface, owner vswitch.Owner) bool {
	written, ok := parseOwner(i.Description)
	return ok && i.Type == "port" && i.Name == vswitch.PortName(owner) && written.ContainerID == owner.ContainerID &&
		written.Interface == owner.Interface
}

// newPort returns the port of an interface that grcli printed. The owner is in the interface's description.
func newPort(i netInterface) (vswitch.Port, error) {
	p := vswitch.Port{Name: i.Name, MTU: i.MTU, Queues: i.Queues}
	p.Owner, _ = parseOwner(i.Description)
	if i.Mode == "bridge" {
		p.Bridge = i.Domain
	}
	if !slices.Contains(i.Flags, "up") {
		p.Fault = "the interface is down"
	}
	return p, parseDevargs(i.Devargs, &p)
}

// check refuses ports that grout does not support, and values that grcli or DPDK would misread.
func (d *Driver) check(p vswitch.Port) error {
	invalid := func(field, message, remedy string) error {
		return d.Refuse(p, field, message, remedy, errdefs.ErrInvalidArgument)
	}
	// Each case is a limit of grout. Its remedy changes the network or the node's configuration.
	switch {
	case p.Name != vswitch.PortName(p.Owner):
		return invalid("name", "must be "+vswitch.PortName(p.Owner), "name the port for its owner")
	case p.VLAN != 0:
		return d.Refuse(p, "vlan", "a bridge of grout has no VLANs",
			"leave out vlan and name a bridge of its own for the VLAN, with a VLAN interface "+
				"of the uplink", errdefs.ErrNotImplemented)
	case p.Rate != 0:
		return d.Refuse(p, "rate", "grout limits no rates", "leave out rate, or use a switch that limits rates",
			errdefs.ErrNotImplemented)
	case p.Type != vswitch.VhostUser && p.Type != vswitch.Memif:
		return d.Refuse(p, "type", "grout has no ports of type "+diag.Quote(string(p.Type)), "use vhost-user or memif",
			errdefs.ErrNotImplemented)
	case p.Type == vswitch.Memif && !p.SwitchListens:
		return d.Refuse(p, "device.role", "grout connects to a memif socket only once, when the port is created",
			"let the switch create the socket: use the role slave for the application", errdefs.ErrNotImplemented)
	case p.Type == vswitch.VhostUser && p.Queues > maxVhostQueues:
		return d.Refuse(p, "queues", fmt.Sprintf("DPDK's vhost driver has at most %d", maxVhostQueues),
			"use fewer queues", errdefs.ErrOutOfRange)
	case !isWord(p.Socket) || !strings.HasPrefix(p.Socket, "/") || strings.ContainsAny(p.Socket, ",="):
		return invalid("socketDir", "the path "+diag.Quote(p.Socket)+" has characters that devargs cannot hold",
			"use letters, digits and . _ - / : @ + in socketDir and device.path")
	case p.Bridge != "" && (!isWord(p.Bridge) || len(p.Bridge) > 15):
		return invalid("bridge", diag.Quote(p.Bridge)+" is not the name of an interface", "name one of grout's bridges")
	}
	if args := formatDevargs(p); len(args) > maxDevargs {
		return invalid("socketDir",
			fmt.Sprintf("the devargs %q have %d bytes; grout stores %d", args, len(args), maxDevargs),
			fmt.Sprintf("shorten socketDir or device.path by %d bytes", len(args)-maxDevargs))
	}
	return nil
}

// isWord reports whether text is one word of grcli's command line, which is split like a shell's.
func isWord(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return text != "" && strings.Trim(text, letters+"0123456789._-/:@+,=") == ""
}

// explain maps an error of grout to the key of the configuration that caused it.
func (d *Driver) explain(p vswitch.Port, e *commandError) error {
	switch {
	case p.MTU != 0 && (e.is(unix.ERANGE) || slices.Contains(e.Expected, "mtu")):
		return d.Refuse(p, "mtu", fmt.Sprintf("%d: %v", p.MTU, e),
			"use an MTU of at least 1280, and start grout with a --max-mtu that is large enough", errdefs.ErrOutOfRange)
	case p.Queues != 0 && e.is(unix.EOVERFLOW):
		return d.Refuse(p, "queues", fmt.Sprintf("%d: %v", p.Queues, e), "use fewer queues", errdefs.ErrOutOfRange)
	case e.is(unix.ENODEV) && p.Bridge != "":
		return d.Refuse(p, "bridge", e.Error(), "check that the bridge exists", errdefs.ErrNotFound)
	case e.is(unix.EPERM):
		// DPDK returns -1 for most failures.
		return d.Refuse(p, "", e.Error(), "see grout's log; DPDK has at most 32 ports in a process unless it was "+
			"built for more", errdefs.ErrFailedPrecondition)
	}
	return d.Refuse(p, "", e.Error(), "see grout's log", errdefs.ErrFailedPrecondition)
}
