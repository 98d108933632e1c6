// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// A port of VPP has no VLAN. Instead, each VLAN of a bridge is a separate bridge domain with one
// sub-interface of the uplink, which adds and removes the VLAN's tag. Pushing a tag on the ports of
// one shared bridge domain would not isolate the ports from each other.
//
// Jackfield creates domain and sub-interface with the first port of a VLAN, and deletes them with
// the last. Both have the same tag. Every other bridge domain or sub-interface is foreign, and is
// neither changed nor deleted.

const (
	// vlanTagPrefix begins the tag "jf-vlan/BRIDGE/VLAN".
	vlanTagPrefix = "jf-vlan/"
	// maxVLANBridge is the largest bridge that can have VLANs, because a bridge domain's number has
	// 24 bits.
	maxVLANBridge = 1<<12 - 1
	// lockPause is the pause between two attempts to lock VPP's VLANs.
	lockPause = 10 * time.Millisecond
)

// segment is a VLAN of a bridge. The zero value is no VLAN.
type segment struct {
	bridge string
	vlan   int
}

// domain returns the number of the segment's bridge domain. It depends only on the segment, so
// every process derives the same number.
func (s segment) domain() uint32 {
	bridge, _ := strconv.ParseUint(s.bridge, 10, 12)
	return uint32(bridge)<<12 | uint32(s.vlan)
}

func (s segment) tag() string { return vlanTagPrefix + s.bridge + "/" + strconv.Itoa(s.vlan) }

// segmentOf returns the segment of a bridge domain that Jackfield created.
func segmentOf(domain uint32, tag string) (segment, bool) {
	s := segment{bridge: strconv.FormatUint(uint64(domain>>12), 10), vlan: int(domain & 0xfff)}
	return s, tag == s.tag()
}

// bridgeDomain is a bridge domain of VPP.
type bridgeDomain struct {
	tag     string
	members map[uint32]bool
}

// findUplink returns the interface with that name.
func (v *inventory) findUplink(name string) (swInterfaceDetailsMessage, bool) {
	for _, d := range v.details {
		if text(d.Name[:]) == name && d.Type != subInterfaceType {
			return d, true
		}
	}
	return swInterfaceDetailsMessage{}, false
}

// findSubInterface returns an uplink's sub-interface for a VLAN.
func (v *inventory) findSubInterface(uplink uint32, vlan int) (swInterfaceDetailsMessage, bool) {
	for _, d := range v.details {
		if d.Type == subInterfaceType && d.SupSwIfIndex == uplink &&
			(d.SubID == uint32(vlan) || int(d.SubOuterVLAN) == vlan) {
			return d, true
		}
	}
	return swInterfaceDetailsMessage{}, false
}

// isUnusedSubInterface reports whether a sub-interface is in the state in which create_vlan_subif
// leaves it.
func (v *inventory) isUnusedSubInterface(d swInterfaceDetailsMessage) bool {
	for _, domain := range v.bridges {
		if domain.members[d.SwIfIndex] {
			return false
		}
	}
	return d.Tag[0] == 0 && d.Flags&adminUp == 0 && d.VTROp == 0
}

// segmentFault returns the reason why a segment is disconnected from the uplink, or "".
func (v *inventory) segmentFault(s segment) string {
	domain := v.bridges[s.domain()]
	for index := range domain.members {
		if d := v.details[index]; d.Type == subInterfaceType && text(d.Tag[:]) == s.tag() {
			if d.Flags&adminUp == 0 || d.VTROp != popOneTag {
				return fmt.Sprintf("the sub-interface of VLAN %d is down or keeps the tag", s.vlan)
			}
			return ""
		}
	}
	return fmt.Sprintf("VLAN %d has no sub-interface of the uplink", s.vlan)
}

// checkVLAN refuses a VLAN that VPP cannot provide.
func (d *Driver) checkVLAN(p vswitch.Port) error {
	const instead = "leave out vlan and name a bridge domain of its own for the VLAN, with a sub-interface " +
		"of the uplink"
	bridge, _ := strconv.ParseUint(p.Bridge, 10, 32)
	switch {
	case p.VLAN == 0:
		return nil
	case d.Uplink == "":
		return d.Refuse(p, "vlan", "the node's configuration has no vswitches."+d.Name+".uplink",
			"set uplink, or "+instead, errdefs.ErrNotImplemented)
	case p.VLAN < 0 || p.VLAN > 4094:
		return d.Refuse(p, "vlan", fmt.Sprintf("invalid value %d", p.VLAN), "use a VLAN from 1 to 4094",
			errdefs.ErrInvalidArgument)
	case bridge == 0 || bridge > maxVLANBridge:
		return d.Refuse(p, "bridge", diag.Quote(p.Bridge)+" has no VLANs",
			fmt.Sprintf("name a bridge from 1 to %d, or %s", maxVLANBridge, instead),
			errdefs.ErrInvalidArgument)
	}
	return nil
}

// ensureSegment creates or corrects the bridge domain and the sub-interface of the port's VLAN. The
// caller holds the lock on VPP's VLANs.
func (d *Driver) ensureSegment(c *connection, v *inventory, port vswitch.Port) error {
	s := segment{port.Bridge, port.VLAN}
	for _, e := range []exchange{bridgeDomainAddDel, createVLANSubif, deleteSubif, l2InterfaceVLANTagRewrite,
		swInterfaceTagAddDel} {
		if !c.knowsMessage(e.request) || !c.knowsMessage(e.answer) {
			return d.Refuse(port, "vlan", c.missingMessage(e.request).Error(), "use a VPP from 23.06 to 26.06",
				errdefs.ErrNotImplemented)
		}
	}
	uplink, ok := v.findUplink(d.Uplink)
	if !ok {
		return d.Refuse(port, "vswitches."+d.Name+".uplink", "VPP has no interface "+diag.Quote(d.Uplink),
			`create it in VPP's startup file, or set uplink to a name that "vppctl show interface" prints`,
			errdefs.ErrNotFound)
	}
	domain, hasDomain := v.bridges[s.domain()]
	if hasDomain && domain.tag != s.tag() {
		return d.Refuse(port, "vlan",
			fmt.Sprintf("bridge domain %d of VLAN %d exists without the tag %s", s.domain(), s.vlan, s.tag()),
			"delete it, or give it another number", errdefs.ErrAlreadyExists)
	}
	sub, hasSub := v.findSubInterface(uplink.SwIfIndex, s.vlan)
	marked := hasSub && text(sub.Tag[:]) == s.tag()
	// An interrupted creation leaves the domain and an unused sub-interface, which are adopted.
	if hasSub && !marked && !(hasDomain && v.isUnusedSubInterface(sub)) {
		return d.Refuse(port, "vlan", fmt.Sprintf("the sub-interface %s exists without the tag %s",
			diag.Quote(text(sub.Name[:])), s.tag()),
			"delete it, or leave out vlan and name the bridge domain of the sub-interface", errdefs.ErrAlreadyExists)
	}
	if !hasDomain {
		request := bridgeDomainAddDelMessage{BridgeDomain: s.domain(), Flood: true, UnknownFlood: true, Forward: true,
			Learn: true, IsAdd: true}
		copy(request.Tag[:], s.tag())
		if err := c.call(bridgeDomainAddDel, new(indexReply), request); err != nil {
			return err
		}
	}
	if !hasSub {
		var created indexReply
		if err := c.call(createVLANSubif, &created,
			createVLANSubifMessage{uplink.SwIfIndex, uint32(s.vlan)}); err != nil {
			return err
		}
		sub.SwIfIndex = created.Index
	}
	return c.configureSubInterface(sub, s, marked, domain.members[sub.SwIfIndex])
}

// configureSubInterface corrects the properties of a segment's sub-interface. A sub-interface
// outside the bridge domain receives its rewrite first, so that no tagged frame enters the domain.
func (c *connection) configureSubInterface(sub swInterfaceDetailsMessage, s segment, marked, joined bool) error {
	index := sub.SwIfIndex
	if !marked {
		if err := c.setTag(index, s.tag()); err != nil {
			return err
		}
	}
	if !joined || sub.VTROp != popOneTag {
		if err := c.call(l2InterfaceVLANTagRewrite, new(retvalReply),
			l2InterfaceVLANTagRewriteMessage{index, popOneTag, 1, 0, 0}); err != nil {
			return err
		}
	}
	if !joined {
		request := swInterfaceSetL2BridgeMessage{SwIfIndex: index, BridgeDomain: s.domain(), Enable: true}
		if err := c.call(swInterfaceSetL2Bridge, new(retvalReply), request); err != nil {
			return err
		}
	}
	if sub.Flags&adminUp == 0 {
		return c.call(swInterfaceSetFlags, new(retvalReply), swInterfaceSetFlagsMessage{index, adminUp})
	}
	return nil
}

// removeUnusedSegments deletes bridge domains with Jackfield's tag that have no ports, and their
// sub-interfaces.
func (d *Driver) removeUnusedSegments(ctx context.Context, c *connection) error {
	unlock, err := d.lockSegments(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := c.readInventory()
	if err != nil {
		return err
	}
	for number, domain := range v.bridges {
		s, ok := segmentOf(number, domain.tag)
		if !ok {
			continue
		}
		var subs []uint32
		for index, details := range v.details {
			if details.Type == subInterfaceType && text(details.Tag[:]) == domain.tag {
				subs = append(subs, index)
				delete(domain.members, index)
			}
		}
		if len(domain.members) > 0 {
			continue
		}
		if uplink, ok := v.findUplink(d.Uplink); ok {
			if sub, ok := v.findSubInterface(uplink.SwIfIndex, s.vlan); ok && v.isUnusedSubInterface(sub) {
				subs = append(subs, sub.SwIfIndex)
			}
		}
		for _, index := range subs {
			if err := ignoreMissing(c.call(deleteSubif, new(retvalReply), swIfIndexMessage{index}),
				retvalInvalidInterface); err != nil {
				return err
			}
		}
		if err := c.call(bridgeDomainAddDel, new(indexReply),
			bridgeDomainAddDelMessage{BridgeDomain: number}); err != nil {
			return err
		}
	}
	return nil
}

// hasSegments reports whether VPP has bridge domains for VLANs.
func (v *inventory) hasSegments() bool {
	for _, domain := range v.bridges {
		if strings.HasPrefix(domain.tag, vlanTagPrefix) {
			return true
		}
	}
	return false
}

// lockSegments excludes other processes of Jackfield from changing VPP's VLANs: the last port of a
// VLAN can leave while the next one joins. It locks the directory of the API socket, which all of
// them can open.
func (d *Driver) lockSegments(ctx context.Context) (unlock func(), err error) {
	dir, err := os.Open(d.Host.Path(path.Dir(d.Endpoint)))
	if err != nil {
		return nil, errdefs.ErrUnavailable.WithMessage("lock VLANs: " + diag.ErrorText(err))
	}
	isLocked := func(err error) bool { return err == unix.EWOULDBLOCK }
	err = retry.Every(lockPause).Retry(ctx, isLocked, func() error {
		return hostfs.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	})
	if err != nil {
		dir.Close()
		return nil, errdefs.ErrUnavailable.WithMessage("lock VLANs: " + diag.ErrorText(err))
	}
	return func() { dir.Close() }, nil
}
