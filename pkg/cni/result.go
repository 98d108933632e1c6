// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

func newResult(version string, data []byte) (types.Result, error) {
	return create.Create(version, data)
}

// newInterface is the attachment's interface in a result (§5, ADD success).
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

// print writes the result in the configuration's version.
func (c *call) print(r *types100.Result) error {
	r.CNIVersion = types100.ImplementedSpecVersion
	out, err := r.GetAsVersion(c.version)
	if err == nil {
		err = out.PrintTo(c.Stdout)
	}
	if err != nil {
		return fail(codeIO, "failed to write the result", "%v", err)
	}
	return nil
}

// interfaceOf is the index of the attachment's interface in a result, -1 for none.
func (c *call) interfaceOf(r *types100.Result) int {
	for i, have := range r.Interfaces {
		if have != nil && have.Name == c.IfName && have.Sandbox != "" {
			return i
		}
	}
	return -1
}

// lacking is the first of the wanted addresses that is not among those of a
// result, "" for none. A wanted address without a prefix length fits any.
func lacking(wanted []string, r *types100.Result) string {
	for _, w := range wanted {
		found := false
		for _, ip := range r.IPs {
			found = found || sameIP(w, ip.Address)
		}
		if !found {
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
