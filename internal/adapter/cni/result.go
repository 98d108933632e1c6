// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// newInterface returns the attachment's interface for a result (§5, ADD success).
func (c *call) newInterface(info *deviceinfo.Info, mac string) *types100.Interface {
	i := &types100.Interface{Name: c.conf.Interface, Mac: mac, Sandbox: c.conf.Netns}
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
		return have != nil && have.Name == c.conf.Interface && have.Sandbox != ""
	})
}

// missingAddress returns the first requested address that a result lacks, or "". A requested
// address without a prefix length matches any prefix length.
func missingAddress(wanted []string, r *types100.Result) string {
	for _, w := range wanted {
		if !slices.ContainsFunc(r.IPs, func(ip *types100.IPConfig) bool { return sameIP(w, ip.Address) }) {
			return w
		}
	}
	return ""
}

// sameIP reports whether a requested address is this one. A request without a prefix length fits any.
func sameIP(wanted string, have net.IPNet) bool {
	if ip, ipnet, err := net.ParseCIDR(wanted); err == nil {
		a, _ := ipnet.Mask.Size()
		b, _ := have.Mask.Size()
		return ip.Equal(have.IP) && a == b
	}
	return have.IP.Equal(net.ParseIP(wanted))
}

// parseResult reads a result, of which data is the text. Results of older plugins, and in the specification's
// examples, have no cniVersion. Then it is that of the configuration.
func parseResult(root *jsontree.Node, data []byte, confVersion string) (*types100.Result, error) {
	version, err := checkParts(root)
	if err != nil {
		return nil, err
	}
	if version == "" {
		version = confVersion
		var whole map[string]json.RawMessage
		_ = json.Unmarshal(data, &whole) // it is an object
		whole["cniVersion"], _ = json.Marshal(version)
		data, _ = json.Marshal(whole)
	}
	r, err := create.Create(version, data)
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(r)
}

// parseResultText parses the output of a plugin like parseResult, and also reports invalid JSON.
func parseResultText(data []byte, confVersion string) (*types100.Result, error) {
	root, fault := jsontree.Parse(string(data))
	if fault != nil {
		return nil, fault
	}
	return parseResult(root, data, confVersion)
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
	return "found a JSON " + kind.Value + ": must be an object"
}

// resultPart lists the required and the optional keys of an address or route in a result.
type resultPart struct {
	Address *jsontree.Node `json:"address"`
	Dst     *jsontree.Node `json:"dst"`
	Gateway *jsontree.Node `json:"gateway"`
	GW      *jsontree.Node `json:"gw"`
}

// ipPart is an address with its routes in results up to version 0.2.0.
type ipPart struct {
	IP      *jsontree.Node `json:"ip"`
	Gateway *jsontree.Node `json:"gateway"`
	Routes  []resultPart   `json:"routes"`
}

// resultFields are the addresses of a result by the names of their keys.
type resultFields struct{ prefixes, gateways map[string]*jsontree.Node }

// addRoutes adds the destinations and gateways of routes, by their fields.
func (f *resultFields) addRoutes(name string, routes []resultPart) {
	for i, route := range routes {
		f.prefixes[fmt.Sprintf("%s[%d].dst", name, i)] = route.Dst
		f.gateways[fmt.Sprintf("%s[%d].gw", name, i)] = route.GW
	}
}

// check rejects a missing or invalid prefix, and an invalid gateway. The error contains the key.
func (f *resultFields) check() error {
	for _, name := range slices.Sorted(maps.Keys(f.prefixes)) {
		n := f.prefixes[name]
		if n == nil {
			return fmt.Errorf("%s: missing: %w", name, errdefs.ErrInvalidArgument)
		}
		if _, err := types.ParseCIDR(n.Text); n.Kind == jsontree.String && err != nil {
			return fmt.Errorf("%s: invalid value %s: must be an address with its prefix length: %w", name,
				diag.Quote(n.Text), errdefs.ErrInvalidArgument)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.gateways)) {
		if n := f.gateways[name]; n != nil && n.Kind == jsontree.String && n.Text != "" && net.ParseIP(n.Text) == nil {
			return fmt.Errorf("%s: invalid value %s: must be an IP address: %w", name, diag.Quote(n.Text),
				errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// checkParts rejects a result of any version with null, incomplete or invalid addresses and routes.
// A null would otherwise be forwarded as an empty address. It returns the version.
func checkParts(root *jsontree.Node) (version string, err error) {
	var result struct {
		Version    string       `json:"cniVersion"`
		Interfaces []resultPart `json:"interfaces"`
		IPs        []resultPart `json:"ips"`
		Routes     []resultPart `json:"routes"`
		IP4        *ipPart      `json:"ip4"`
		IP6        *ipPart      `json:"ip6"`
	}
	if fault := (jsontree.Decoder{RefuseOtherCase: true}).Decode(root, &result); fault != nil {
		return "", fault
	}
	fields := &resultFields{map[string]*jsontree.Node{}, map[string]*jsontree.Node{}}
	for i, ip := range result.IPs {
		fields.prefixes[fmt.Sprintf("ips[%d].address", i)] = ip.Address
		fields.gateways[fmt.Sprintf("ips[%d].gateway", i)] = ip.Gateway
	}
	fields.addRoutes("routes", result.Routes)
	for name, ip := range map[string]*ipPart{"ip4": result.IP4, "ip6": result.IP6} {
		if ip != nil {
			fields.prefixes[name+".ip"], fields.gateways[name+".gateway"] = ip.IP, ip.Gateway
			fields.addRoutes(name+".routes", ip.Routes)
		}
	}
	return result.Version, fields.check()
}
