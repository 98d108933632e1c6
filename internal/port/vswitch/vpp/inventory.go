// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// swInterface is a vhost-user or memif interface of VPP. If it has Jackfield's tag, the Port has
// name and owner.
type swInterface struct {
	vswitch.Port
	index       uint32
	up, tagged  bool
	mtu         [4]uint32
	memifSocket uint32
}

// inventory is a snapshot of VPP's objects. A change is planned on it, because VPP's API has no
// transactions.
type inventory struct {
	interfaces   map[uint32]*swInterface
	bridges      map[uint32]bridgeDomain
	details      map[uint32]swInterfaceDetailsMessage // all interfaces by index
	policers     map[string]uint32                    // rates in kbit/s by name
	memifSockets map[uint32]string                    // paths by VPP's socket IDs
}

// isLeftoverOf reports whether an interrupted creation of the port left this interface: an unused
// memif without a tag on the port's socket.
func (i *swInterface) isLeftoverOf(port vswitch.Port) bool {
	return i.Type == vswitch.Memif && isSameSocket(i.Port, port) && !i.tagged && !i.up && i.Bridge == ""
}

// owned returns the owner's interface, or nil.
func (v *inventory) owned(owner vswitch.Owner) *swInterface {
	for _, i := range v.interfaces {
		if i.Name != "" && i.Name == vswitch.PortName(owner) {
			return i
		}
	}
	return nil
}

// readInventory reads VPP's interfaces and bridge domains. A plugin that is not loaded contributes
// none.
func (c *connection) readInventory() (*inventory, error) {
	v := &inventory{interfaces: map[uint32]*swInterface{}, bridges: map[uint32]bridgeDomain{},
		memifSockets: map[uint32]string{},
		details:      map[uint32]swInterfaceDetailsMessage{}}
	err := c.dump(swInterfaceDump, swInterfaceDumpMessage{SwIfIndex: anyIndex}, func(body []byte) error {
		var m swInterfaceDetailsMessage
		_, err := decode(body, &m)
		v.details[m.SwIfIndex] = m
		return err
	})
	if err != nil {
		return nil, err
	}
	if v.policers, err = c.readPolicers(); err != nil {
		return nil, err
	}
	add := func(index uint32, port vswitch.Port, memifSocket uint32) {
		d := v.details[index]
		i := &swInterface{Port: port, index: index, up: d.Flags&adminUp != 0, tagged: d.Tag[0] != 0, mtu: d.MTU,
			memifSocket: memifSocket}
		i.MTU = int(d.MTU[0])
		if owner, ok := parseTag(text(d.Tag[:])); ok {
			i.Owner, i.Name = owner, vswitch.PortName(owner)
			i.Rate = uint64(v.policers[formatTag(owner)]) * 1000
		}
		if !i.up {
			i.Fault = "the interface is down"
		}
		v.interfaces[index] = i
	}
	if c.knowsMessage(swInterfaceVhostUserDump.request) {
		err := c.dump(swInterfaceVhostUserDump, swIfIndexMessage{anyIndex}, func(body []byte) error {
			var m swInterfaceVhostUserDetailsMessage
			_, err := decode(body, &m)
			add(m.SwIfIndex, vswitch.Port{Type: vswitch.VhostUser, Socket: text(m.Socket[:]),
				SwitchListens: m.IsServer}, 0)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if c.knowsMessage(memifDump.request) {
		if err := c.readMemifs(v.memifSockets, add); err != nil {
			return nil, err
		}
	}
	err = c.dump(bridgeDomainDump, bridgeDomainDumpMessage{anyIndex, anyIndex}, func(body []byte) error {
		var m bridgeDomainDetailsMessage
		rest, err := decode(body, &m)
		if err != nil {
			return err
		}
		domain := bridgeDomain{tag: text(m.Tag[:]), members: map[uint32]bool{}}
		v.bridges[m.BridgeDomain] = domain
		for range m.Members {
			var member bridgeDomainMember
			if rest, err = decode(rest, &member); err != nil {
				return err
			}
			domain.members[member.SwIfIndex] = true
		}
		return nil
	})
	for number, domain := range v.bridges {
		v.setBridge(number, domain)
	}
	return v, err
}

// setBridge sets the bridge and the VLAN of a bridge domain's interfaces.
func (v *inventory) setBridge(number uint32, domain bridgeDomain) {
	s, isSegment := segmentOf(number, domain.tag)
	for index := range domain.members {
		i := v.interfaces[index]
		if i == nil {
			continue
		}
		i.Bridge = strconv.FormatUint(uint64(number), 10)
		if isSegment {
			i.Bridge, i.VLAN = s.bridge, s.vlan
			i.Fault = cmp.Or(i.Fault, v.segmentFault(s))
		}
	}
}

// readMemifs reads the memif sockets, and calls add for each memif interface.
func (c *connection) readMemifs(sockets map[uint32]string,
	add func(index uint32, port vswitch.Port, memifSocket uint32)) error {
	err := c.dump(memifSocketFilenameDump, struct{}{}, func(body []byte) error {
		var m memifSocketFilenameDetailsMessage
		_, err := decode(body, &m)
		sockets[m.SocketID] = text(m.Filename[:])
		return err
	})
	if err != nil {
		return err
	}
	return c.dump(memifDump, struct{}{}, func(body []byte) error {
		var m memifDetailsMessage
		_, err := decode(body, &m)
		add(m.SwIfIndex, vswitch.Port{Type: vswitch.Memif, Socket: sockets[m.SocketID],
			SwitchListens: m.Role == memifMaster}, m.SocketID)
		return err
	})
}

func (c *connection) knowsMessage(message string) bool {
	_, ok := c.ids[message]
	return ok
}

const (
	// maxTag is the number of bytes that VPP stores, without the NUL.
	maxTag = 63
	// tagPrefix begins the tag of each of Jackfield's interfaces.
	tagPrefix = "jf/"
	// shortIDPrefix begins a 32-byte container ID in base64. No ID of CNI begins with it.
	shortIDPrefix = "="
)

// formatTag returns the tag of an owner's interface: "jf/ID/IFNAME". The ID of a pod's sandbox, 64
// hexadecimal digits, exceeds the tag, so it is encoded in base64.
func formatTag(o vswitch.Owner) string {
	id := o.ContainerID
	if raw, err := hex.DecodeString(id); err == nil && len(raw) == 32 && hex.EncodeToString(raw) == id {
		id = shortIDPrefix + base64.RawURLEncoding.EncodeToString(raw)
	}
	return tagPrefix + id + "/" + o.Interface
}

// parseTag parses a tag that formatTag returned.
func parseTag(tag string) (vswitch.Owner, bool) {
	rest, ok := strings.CutPrefix(tag, tagPrefix)
	id, name, both := strings.Cut(rest, "/")
	if !ok || !both || id == "" || name == "" {
		return vswitch.Owner{}, false
	}
	if short, ok := strings.CutPrefix(id, shortIDPrefix); ok {
		raw, err := base64.RawURLEncoding.DecodeString(short)
		if err != nil {
			return vswitch.Owner{}, false
		}
		id = hex.EncodeToString(raw)
	}
	owner := vswitch.Owner{ContainerID: id, Interface: name}
	return owner, formatTag(owner) == tag
}
