// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/jackfield/jackfield/internal/attach"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// newInterface returns the attachment's interface for a result (§5, ADD success).
func (c *call) newInterface(info *deviceinfo.Info, socket, mac string) *types100.Interface {
	i := &types100.Interface{Name: c.IfName, Mac: mac, Sandbox: c.Netns}
	if older(c.version, "1.1.0") {
		return i
	}
	if !strings.HasPrefix(socket, "@") { // "an absolute path to a socket file"
		i.SocketPath = socket
	}
	i.PciID = pciID(info)
	return i
}

func pciID(info *deviceinfo.Info) string {
	switch info.Type {
	case deviceinfo.TypePCI:
		return info.PCI.PCIAddress
	case deviceinfo.TypeVDPA:
		return info.VDPA.PCIAddress
	}
	return ""
}

// printResult prints the result in the configuration's version.
func (c *call) printResult(r *types100.Result) error {
	r.CNIVersion = types100.ImplementedSpecVersion
	out, err := r.GetAsVersion(c.version)
	if err == nil {
		err = out.PrintTo(c.Stdout)
	}
	if err != nil {
		return attach.Fail(codeIO, "failed to write the result", "%v", err)
	}
	return nil
}

// interfaceOf returns the index of the attachment's interface in a result, or -1.
func (c *call) interfaceOf(r *types100.Result) int {
	return slices.IndexFunc(r.Interfaces, func(have *types100.Interface) bool {
		return have != nil && have.Name == c.IfName && have.Sandbox != ""
	})
}

// missingAddress returns the first wanted address that is not in a result, or "". A wanted address without a
// prefix length matches any prefix length.
func missingAddress(wanted []string, r *types100.Result) string {
	for _, w := range wanted {
		if !slices.ContainsFunc(r.IPs, func(ip *types100.IPConfig) bool { return sameIP(w, ip.Address) }) {
			return w
		}
	}
	return ""
}

func sameIP(wanted string, have net.IPNet) bool {
	if ip, ipnet, err := net.ParseCIDR(wanted); err == nil {
		a, _ := ipnet.Mask.Size()
		b, _ := have.Mask.Size()
		return ip.Equal(have.IP) && a == b
	}
	return have.IP.Equal(net.ParseIP(wanted))
}
