// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/jackfield/jackfield/internal/attach"
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// newInterface returns the attachment's interface for a result (§5, ADD success).
func (c *call) newInterface(info *deviceinfo.Info, mac string) *types100.Interface {
	i := &types100.Interface{Name: c.IfName, Mac: mac, Sandbox: c.Netns}
	if isOlder(c.version, "1.1.0") {
		return i
	}
	if socket := attach.SocketPath(info); !strings.HasPrefix(socket, "@") { // "an absolute path to a socket file"
		i.SocketPath = socket
	}
	switch info.Type {
	case deviceinfo.TypePCI:
		i.PciID = info.PCI.PCIAddress
	case deviceinfo.TypeVDPA:
		i.PciID = info.VDPA.PCIAddress
	}
	return i
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

// parseResult parses a result. Results of older plugins, and in the specification's examples, have no
// cniVersion. Then it is that of the configuration.
func parseResult(data []byte, confVersion string) (*types100.Result, error) {
	if err := checkParts(data); err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if m == nil { // null
		m = map[string]json.RawMessage{}
	}
	version := ""
	if raw, ok := m["cniVersion"]; ok {
		if err := json.Unmarshal(raw, &version); err != nil {
			return nil, err
		}
	}
	if version == "" {
		version = confVersion
		m["cniVersion"], _ = json.Marshal(version)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	r, err := create.Create(version, data)
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(r)
}

// decodeProblem describes an error of parseResult without the names of this program's types.
func decodeProblem(err error) string {
	var kind *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &kind):
		return diag.ErrorText(err)
	case kind.Field != "":
		return kind.Field + ": found a JSON " + kind.Value
	}
	return "found a JSON " + kind.Value + ", want a map"
}

// resultPart has what an address or a route of a result must have.
type resultPart struct {
	Address *json.RawMessage `json:"address"`
	Dst     *json.RawMessage `json:"dst"`
}

// ipPart is an address with its routes in a result until 0.2.0.
type ipPart struct {
	IP     *json.RawMessage `json:"ip"`
	Routes []*resultPart    `json:"routes"`
}

// checkParts refuses a result of any version with null or incomplete parts. They would be passed on as empty addresses
// and routes.
func checkParts(data []byte) error {
	var result struct {
		Interfaces []*resultPart `json:"interfaces"`
		IPs        []*resultPart `json:"ips"`
		Routes     []*resultPart `json:"routes"`
		IP4        *ipPart       `json:"ip4"`
		IP6        *ipPart       `json:"ip6"`
	}
	if err := json.Unmarshal(data, &result); err != nil {
		return err
	}
	var missing []string
	check := func(parts []*resultPart, name string, isComplete func(*resultPart) bool) {
		for i, part := range parts {
			if part == nil || !isComplete(part) {
				missing = append(missing, fmt.Sprintf(name, i))
			}
		}
	}
	hasDst := func(p *resultPart) bool { return p.Dst != nil }
	check(result.Interfaces, "interfaces[%d]", func(*resultPart) bool { return true })
	check(result.IPs, "ips[%d].address", func(p *resultPart) bool { return p.Address != nil })
	check(result.Routes, "routes[%d].dst", hasDst)
	for name, ip := range map[string]*ipPart{"ip4": result.IP4, "ip6": result.IP6} {
		if ip == nil {
			continue
		}
		if ip.IP == nil {
			missing = append(missing, name+".ip")
		}
		check(ip.Routes, name+".routes[%d].dst", hasDst)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: missing: %w", slices.Min(missing), errdefs.ErrInvalidArgument)
	}
	return nil
}
