// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/devices"
)

// InterfaceInfoKey is the key of device-info for properties that the Device Information
// Specification does not cover. Package attach writes it.
const InterfaceInfoKey = "jackfield.dev/interface"

// InterfaceInfo is the description of an attachment's interface in device-info, beyond its device.
type InterfaceInfo struct {
	Network   string            `json:"network,omitempty"`
	MAC       string            `json:"mac,omitempty"`
	IPs       []string          `json:"ips,omitempty"` // with prefix length
	Gateway   []string          `json:"gateway,omitempty"`
	DNS       *devices.DNS      `json:"dns,omitempty"`
	Bandwidth map[string]uint64 `json:"bandwidth,omitempty"` // bits per second, and bits
	MTU       int               `json:"mtu,omitempty"`
	Queues    int               `json:"queues,omitempty"` // pairs
	Labels    []devices.Label   `json:"labels,omitempty"`
}

// ReadInterfaceInfo returns the description of the interface in device-info. Without the key it is
// empty.
func ReadInterfaceInfo(info *deviceinfo.Info) (n InterfaceInfo, err error) {
	raw, ok := info.Extra[InterfaceInfoKey]
	if !ok {
		return n, nil
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return InterfaceInfo{}, err
	}
	return n, nil
}

// RemoveInvalid removes invalid addresses and numbers out of range, because device-info is untrusted.
func (n *InterfaceInfo) RemoveInvalid() {
	n.MAC, _ = ParseMAC(n.MAC)
	n.MTU = validMTU(n.MTU)
	if n.Queues < 0 || n.Queues > 256 {
		n.Queues = 0
	}
	n.IPs = slices.DeleteFunc(n.IPs, isNoCIDR)
	n.Gateway = slices.DeleteFunc(n.Gateway, func(s string) bool { return net.ParseIP(s) == nil })
}

// ParseMAC returns the hardware address of an Ethernet interface in the kernel's form. For an
// invalid text it returns the rule as a noun phrase for "must be …".
func ParseMAC(text string) (mac, rule string) {
	hw, err := net.ParseMAC(text)
	switch {
	case err != nil || len(hw) != 6:
		return "", "a hardware address of six bytes, such as c2:11:22:33:44:55"
	case hw[0]&1 != 0:
		return "", "the address of one interface, not a multicast address"
	case canonicalMAC(text) == "":
		return "", "an address that is not all zeros, such as c2:11:22:33:44:55"
	}
	return hw.String(), ""
}

// validMTU returns an MTU that an interface can have, or 0.
func validMTU(mtu int) int {
	if mtu < 68 || mtu > 65535 {
		return 0
	}
	return mtu
}

func isNoCIDR(s string) bool {
	_, _, err := net.ParseCIDR(s)
	return err != nil
}

// interfaceRecord is one source's description of a device's interface. fields holds the keys of the
// values in that source.
type interfaceRecord struct {
	source string
	fields struct{ mac, ips, mtu string }
	mac    string
	ips    []string
	mtu    int
}

// newClaimRecord returns the interface in a claim's metadata.
func newClaimRecord(c *ClaimedDevice) interfaceRecord {
	r := interfaceRecord{source: c.File, mac: c.MAC, ips: c.IPs, mtu: c.MTU}
	r.fields.mac, r.fields.ips, r.fields.mtu = "networkData.hardwareAddress", "networkData.ips", "attribute mtu"
	return r
}

// newInfoRecord returns the interface in the attachment's device-info.
func newInfoRecord(a *Attachment) interfaceRecord {
	n, _ := ReadInterfaceInfo(a.Info) // empty if unreadable
	n.RemoveInvalid()
	r := interfaceRecord{source: a.File, mac: n.MAC, ips: n.IPs, mtu: n.MTU}
	r.fields.mac, r.fields.ips, r.fields.mtu = InterfaceInfoKey+".mac", InterfaceInfoKey+".ips", InterfaceInfoKey+".mtu"
	return r
}

// compareWithClaim returns a conflict if a claim's metadata contradicts the attachment's
// device-info or libcni's record.
func (o *owners) compareWithClaim(a *Attachment, c *ClaimedDevice, device string) error {
	record := o.records[a.IfName]
	if c.IfName != "" && a.IfName != "" && c.IfName != a.IfName {
		return &ConflictError{On: "which interface " + device + " is",
			First:  Claim{cmp.Or(a.File, record.source, "Multus' record"), a.IfName},
			Second: Claim{c.File, c.IfName}, Hint: hintRecreate}
	}
	for _, r := range []interfaceRecord{newInfoRecord(a), record} {
		if err := compareInterfaces(device, r, newClaimRecord(c), hintRecreate); err != nil {
			return err
		}
	}
	return nil
}

// compareInterfaces returns a conflict if two sources contradict each other about a device's
// interface. A missing value does not contradict.
func compareInterfaces(device string, first, second interfaceRecord, hint string) error {
	conflict := func(property, firstValue, secondValue string) error {
		return &ConflictError{On: "which " + property + " " + device + " has", First: Claim{first.source, firstValue},
			Second: Claim{second.source, secondValue}, Hint: hint}
	}
	switch a, b := canonicalMAC(first.mac), canonicalMAC(second.mac); {
	case a != "" && b != "" && a != b:
		return conflict("MAC address", first.fields.mac+" "+a, second.fields.mac+" "+b)
	case first.mtu != 0 && second.mtu != 0 && first.mtu != second.mtu:
		return conflict("MTU", first.fields.mtu+" "+strconv.Itoa(first.mtu),
			second.fields.mtu+" "+strconv.Itoa(second.mtu))
	case !addressesAgree(first.ips, second.ips):
		return conflict("addresses", fmt.Sprintf("%s %q", first.fields.ips, first.ips),
			fmt.Sprintf("%s %q", second.fields.ips, second.ips))
	}
	return nil
}

// canonicalMAC returns a hardware address in the kernel's form. It returns "" for zeros, which
// drivers write for an unset address.
func canonicalMAC(s string) string {
	mac, err := net.ParseMAC(s)
	if err != nil || !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 }) {
		return ""
	}
	return mac.String()
}

// addressesAgree reports whether two sources can both be right about an interface's addresses. A
// source can know fewer addresses, so one list must contain the other, separately for IPv4 and
// IPv6.
func addressesAgree(a, b []string) bool {
	contains := func(all, some []netip.Prefix) bool {
		return !slices.ContainsFunc(some, func(p netip.Prefix) bool { return !slices.Contains(all, p) })
	}
	for _, is6 := range []bool{false, true} {
		x, y := addressesOf(a, is6), addressesOf(b, is6)
		if !contains(x, y) && !contains(y, x) {
			return false
		}
	}
	return true
}

// addressesOf returns the addresses of a family, with their prefix lengths. It omits link-local
// addresses, because the kernel adds them.
func addressesOf(list []string, is6 bool) (out []netip.Prefix) {
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is6() == is6 && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p)
		}
	}
	return out
}
