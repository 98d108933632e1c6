// SPDX-License-Identifier: Apache-2.0

package grout

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// maxDevargs is the number of bytes that grout stores, without the NUL.
	maxDevargs = 127

	vhostDriver = "net_vhost"
	memifDriver = "net_memif"
	// ownerPrefix begins the description of each of Jackfield's interfaces.
	ownerPrefix = "jackfield:"
)

// formatDevargs returns the DPDK device of a port. The device's name must be unique in grout's
// process. It is taken from the port's name instead of a counter, so that processes need not
// coordinate.
func formatDevargs(p vswitch.Port) string {
	id := p.Name[2:10]
	if p.Type == vswitch.Memif {
		return memifDriver + id + ",role=server,socket=" + p.Socket + ",socket-abstract=no"
	}
	args := vhostDriver + id + ",iface=" + p.Socket
	if p.Queues > 1 {
		args += ",queues=" + strconv.Itoa(p.Queues)
	}
	if !p.SwitchListens {
		args += ",client=1"
	}
	return args
}

// parseDevargs parses the devargs that formatDevargs returns.
func parseDevargs(args string, p *vswitch.Port) error {
	device, rest, _ := strings.Cut(args, ",")
	keys := map[string]string{}
	for arg := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(arg, "=")
		keys[key] = value
	}
	switch {
	case strings.HasPrefix(device, vhostDriver):
		p.Type, p.Socket, p.SwitchListens = vswitch.VhostUser, keys["iface"], keys["client"] != "1"
	case strings.HasPrefix(device, memifDriver):
		p.Type, p.Socket, p.SwitchListens = vswitch.Memif, keys["socket"], keys["role"] == "server"
	default:
		return errdefs.ErrUnknown.WithMessage("devargs: neither " + vhostDriver + " nor " + memifDriver)
	}
	if p.Socket == "" {
		return errdefs.ErrUnknown.WithMessage("devargs: no socket")
	}
	return nil
}

// formatOwner returns the interface's description. It contains only characters without a special
// meaning in grcli's command line.
func formatOwner(o vswitch.Owner) string {
	parts := []string{url.QueryEscape(o.ContainerID), url.QueryEscape(o.Interface)}
	if o.Network != "" {
		parts = append(parts, url.QueryEscape(o.Network))
	}
	return ownerPrefix + strings.Join(parts, "/")
}

// parseOwner parses a description that formatOwner returned.
func parseOwner(description string) (vswitch.Owner, bool) {
	text, ok := strings.CutPrefix(description, ownerPrefix)
	parts := strings.Split(text, "/")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return vswitch.Owner{}, false
	}
	for i := range parts {
		var err error
		if parts[i], err = url.QueryUnescape(parts[i]); err != nil || parts[i] == "" {
			return vswitch.Owner{}, false
		}
	}
	o := vswitch.Owner{ContainerID: parts[0], Interface: parts[1]}
	if len(parts) == 3 {
		o.Network = parts[2]
	}
	return o, true
}
