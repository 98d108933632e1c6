// SPDX-License-Identifier: Apache-2.0

package devicemetadata

import (
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
)

// Metadata is the content of one file: metadata.resource.k8s.io DeviceMetadata, v1beta1 and
// v1alpha1, which are the same.
type Metadata struct {
	Version    string // apiVersion of the object that was read
	Namespace  string // metadata.namespace: of the claim
	Claim      string // metadata.name
	UID        string // metadata.uid: of the claim; "" if the driver did not write it
	Generation int64  // metadata.generation: counts the driver's updates
	// PodClaim is podClaimName: pod.spec.resourceClaims[].name of a claim that was created from a
	// template, otherwise "".
	PodClaim string
	Requests []Request
}

// Request is the devices of one request of the claim.
type Request struct {
	Name    string // <request>, or <request>/<subrequest>
	Devices []Device
}

// Device is what the driver says about one allocated device. A value that it does not say is "".
type Device struct {
	// As in Pod Resources.
	Driver string `json:"driver"`
	Pool   string `json:"pool,omitempty"`
	Name   string `json:"device,omitempty"`

	// PCIAddress is resource.kubernetes.io/pciBusID, as sysfs writes it, or else
	// k8s.cni.cncf.io/deviceID, which drivers write for Multus, if that is an address.
	PCIAddress    string `json:"pciAddress,omitempty"`
	VhostUserPath string `json:"vhostUserPath,omitempty"` // vhost-user-path, or <driver>/vhost-user-path
	MTU           int    `json:"mtu,omitempty"`           // mtu, or <driver>/mtu; 0 if unknown

	IfName string   `json:"-"`             // networkData.interfaceName, in the pod
	IPs    []string `json:"ips,omitempty"` // networkData.ips, in CIDR form
	MAC    string   `json:"mac,omitempty"` // networkData.hardwareAddress
}

const (
	group = "metadata.resource.k8s.io/"
	kind  = "DeviceMetadata"

	attributePCI      = "resource.kubernetes.io/pciBusID"
	attributeDeviceID = "k8s.cni.cncf.io/deviceID"
	attributeVhost    = "vhost-user-path"
	attributeMTU      = "mtu"

	// Limits of one file. Kubernetes allows 32 devices for each claim.
	maxDevices = 1024
	maxIPs     = 64
	maxText    = 1024 // bytes of a name or ID
	maxSocket  = 107  // bytes of a UNIX socket's path
)

// isKnownVersion reports whether this package reads an API version.
func isKnownVersion(apiVersion string) bool {
	return apiVersion == group+"v1beta1" || apiVersion == group+"v1alpha1"
}

// Parse reads the content of a file. file is its name in diagnostics.
func Parse(text, file string) (*Metadata, error) {
	return newReader(text, file).next()
}

// Validate reads the content of a file in each version that this package knows, and checks that it is
// of the file's place: hostPath is its path on a host, "" for none. file is its name in the diagnostic.
func Validate(text, file, hostPath string) ([]*Metadata, error) {
	at, isPlaced := Dir{Path: path.Join(hostPath, "../../../../..")}.Locate(hostPath)
	at.Path = file
	var all []*Metadata
	for r := newReader(text, file); ; {
		m, err := r.next()
		if err == nil && m != nil && isPlaced {
			err = at.checkPlace(m)
		}
		if err != nil || m == nil {
			return all, err
		}
		all = append(all, m)
	}
}

// reader reads the objects of a stream.
type reader struct {
	file    string
	stream  *jsontree.Stream
	known   int      // objects that were read
	unknown []string // versions that were skipped
}

func newReader(text, file string) *reader {
	return &reader{file: file, stream: jsontree.NewStream(text)}
}

// next returns the next object in a version that this package knows; nil at the end, and an error if
// there was none.
func (r *reader) next() (*Metadata, error) {
	p := parser{file: r.file}
	for {
		root, fault := r.stream.Next()
		if fault != nil {
			fault.File = r.file
			return nil, fault
		}
		if root == nil && r.known > 0 {
			return nil, nil
		}
		if root == nil {
			rule := "must have an object in version " + group + "v1beta1 or v1alpha1"
			if len(r.unknown) == 0 {
				return nil, &diag.Diagnostic{File: r.file, Found: "no JSON value", Rule: rule}
			}
			return nil, &diag.Diagnostic{File: r.file, Field: "apiVersion", Found: strings.Join(r.unknown, ", "), Rule: rule}
		}
		p.checkObject(root, "")
		version := p.readText(root, "", "apiVersion", required)
		if p.fault != nil {
			return nil, p.fault
		}
		if !isKnownVersion(version) {
			if len(r.unknown) < 8 {
				r.unknown = append(r.unknown, quote(version))
			}
			continue
		}
		m := p.readMetadata(root, version)
		if p.fault != nil {
			return nil, p.fault
		}
		r.known++
		return m, nil
	}
}

// parser keeps the first fault. Its methods do nothing after it.
type parser struct {
	file    string
	fault   *diag.Diagnostic
	devices int
}

func (p *parser) addFault(n *jsontree.Node, field, found, rule string) {
	if p.fault == nil {
		p.fault = &diag.Diagnostic{File: p.file, Line: n.Line, Column: n.Column, Field: field, Found: found, Rule: rule}
	}
}

// checkObject checks that a value is an object that has each key once.
func (p *parser) checkObject(n *jsontree.Node, field string) bool {
	if !p.checkKind(n, field, jsontree.Object) {
		return false
	}
	if d := n.Duplicate(); d != nil && p.fault == nil {
		p.fault = &diag.Diagnostic{File: p.file, Line: d.KeyLine, Column: d.KeyColumn, Field: field, Found: quote(d.Key), Rule: "a key must occur only once"}
	}
	return p.fault == nil
}

func (p *parser) checkKind(n *jsontree.Node, field string, kind jsontree.Kind) bool {
	if n.Kind != kind {
		p.addFault(n, field, n.Kind.String(), "must be "+kind.String())
	}
	return p.fault == nil
}

// findMember returns a member that is set: null counts as missing.
func findMember(n *jsontree.Node, key string) *jsontree.Node {
	m := n.Member(key)
	if m == nil || m.Kind == jsontree.Null {
		return nil
	}
	return m
}

func joinField(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

const (
	optional = false
	required = true
)

// readText returns a member that is a name or ID: printable, without space, bounded.
func (p *parser) readText(n *jsontree.Node, field, key string, must bool) string {
	m, field := findMember(n, key), joinField(field, key)
	switch {
	case p.fault != nil:
	case m == nil && must:
		p.addFault(n, field, "nothing", "is required")
	case m != nil && p.checkKind(m, field, jsontree.String):
		return p.checkText(m, field, m.Text, must)
	}
	return ""
}

// checkText returns a name or ID, if it is one.
func (p *parser) checkText(n *jsontree.Node, field, text string, must bool) string {
	switch {
	case text == "" && must:
		p.addFault(n, field, `""`, "must not be empty")
	case len(text) > maxText:
		p.addFault(n, field, strconv.Itoa(len(text))+" bytes", "must have at most "+strconv.Itoa(maxText))
	case strings.ContainsFunc(text, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) || r == unicode.ReplacementChar }):
		p.addFault(n, field, quote(text), "must be printable and without a space")
	}
	return text
}

// readList returns the elements of a member that is an array.
func (p *parser) readList(n *jsontree.Node, field, key string) []*jsontree.Node {
	m := findMember(n, key)
	if p.fault != nil || m == nil || !p.checkKind(m, joinField(field, key), jsontree.Array) {
		return nil
	}
	return m.Children
}

func (p *parser) readMetadata(root *jsontree.Node, version string) *Metadata {
	m := &Metadata{Version: version}
	if found := p.readText(root, "", "kind", required); found != kind && p.fault == nil {
		p.addFault(root.Member("kind"), "kind", quote(found), "must be "+kind)
	}
	meta := findMember(root, "metadata")
	if meta == nil {
		p.addFault(root, "metadata", "nothing", "is required")
		return m
	}
	if !p.checkObject(meta, "metadata") {
		return m
	}
	m.Claim = p.readText(meta, "metadata", "name", required)
	m.Namespace = p.readText(meta, "metadata", "namespace", required)
	m.UID = p.readText(meta, "metadata", "uid", optional)
	m.Generation = int64(p.readNumber(findMember(meta, "generation"), "metadata.generation", 0, 1<<62))
	m.PodClaim = p.readText(root, "", "podClaimName", optional)
	for i, n := range p.readList(root, "", "requests") {
		m.Requests = append(m.Requests, p.readRequest(n, fmt.Sprintf("requests[%d]", i)))
	}
	return m
}

// readNumber returns a number without a fraction; 0 for nil.
func (p *parser) readNumber(n *jsontree.Node, field string, low, high int) int {
	if n == nil || p.fault != nil || !p.checkKind(n, field, jsontree.Number) {
		return 0
	}
	v, err := strconv.Atoi(n.Text)
	if err != nil || v < low || v > high {
		p.addFault(n, field, quote(n.Text), fmt.Sprintf("must be a whole number from %d to %d", low, high))
	}
	return v
}

func (p *parser) readRequest(n *jsontree.Node, field string) Request {
	if !p.checkObject(n, field) {
		return Request{}
	}
	r := Request{Name: p.readText(n, field, "name", required)}
	for i, n := range p.readList(n, field, "devices") {
		if p.devices++; p.devices > maxDevices {
			p.addFault(n, field+".devices", "more than "+strconv.Itoa(maxDevices)+" devices", "must be fewer")
			break
		}
		r.Devices = append(r.Devices, p.readDevice(n, fmt.Sprintf("%s.devices[%d]", field, i)))
	}
	return r
}

func (p *parser) readDevice(n *jsontree.Node, field string) Device {
	if !p.checkObject(n, field) {
		return Device{}
	}
	d := Device{Driver: p.readText(n, field, "driver", required), Pool: p.readText(n, field, "pool", required), Name: p.readText(n, field, "name", required)}
	if a := findMember(n, "attributes"); a != nil && p.checkObject(a, field+".attributes") {
		p.readAttributes(a, field+".attributes", &d)
	}
	if data := findMember(n, "networkData"); data != nil && p.checkObject(data, field+".networkData") {
		p.readNetworkData(data, field+".networkData", &d)
	}
	return d
}

// readAttributes reads the attributes that are used here. A name without a domain is of the driver's
// own domain.
func (p *parser) readAttributes(n *jsontree.Node, field string, d *Device) {
	own := func(name string) *jsontree.Node {
		if a := findMember(n, name); a != nil {
			return a
		}
		return findMember(n, d.Driver+"/"+name)
	}
	if v, at := p.readString(findMember(n, attributePCI), field); v != nil {
		d.PCIAddress = p.readPCIAddress(v, at)
	}
	if v, at := p.readString(findMember(n, attributeDeviceID), field); v != nil {
		address, isAddress := diag.PCIAddress(v.Text)
		switch {
		case !isAddress:
		case d.PCIAddress == "":
			d.PCIAddress = address
		case d.PCIAddress != address:
			p.addFault(v, at, quote(v.Text), attributePCI+" says "+d.PCIAddress+": both must name one device")
		}
	}
	if v, at := p.readString(own(attributeVhost), field); v != nil {
		d.VhostUserPath = p.readSocketPath(v, at)
	}
	if a := own(attributeMTU); a != nil && p.checkObject(a, field+"."+a.Key) {
		v := findMember(a, "int")
		if v == nil {
			p.addFault(a, field+"."+a.Key, "no key int", "must be a number: {\"int\": N}")
			return
		}
		d.MTU = p.readNumber(v, field+"."+a.Key+".int", 68, 65535)
	}
}

// readString returns the value of an attribute of type string, and its field; nil for a missing
// attribute.
func (p *parser) readString(a *jsontree.Node, field string) (v *jsontree.Node, at string) {
	if a == nil || p.fault != nil {
		return nil, ""
	}
	field = field + "." + a.Key
	if !p.checkObject(a, field) {
		return nil, ""
	}
	if v = findMember(a, "string"); v == nil {
		p.addFault(a, field, "no key string", "must be a string: {\"string\": \"TEXT\"}")
		return nil, ""
	}
	if !p.checkKind(v, field+".string", jsontree.String) {
		return nil, ""
	}
	return v, field + ".string"
}

func (p *parser) readPCIAddress(n *jsontree.Node, field string) string {
	address, wellFormed := diag.PCIAddress(n.Text)
	if !wellFormed {
		p.addFault(n, field, quote(n.Text), "must be a PCI address DDDD:BB:DD.F")
		if p.fault != nil && address != "" {
			p.fault.Hint = "did you mean " + address + "?"
		}
	}
	return address
}

func (p *parser) readSocketPath(n *jsontree.Node, field string) string {
	switch s := p.checkText(n, field, n.Text, required); {
	case p.fault != nil:
	case len(s) > maxSocket:
		p.addFault(n, field, strconv.Itoa(len(s))+" bytes", "must have at most "+strconv.Itoa(maxSocket)+", the longest path of a UNIX socket")
	case !path.IsAbs(s) || path.Clean(s) != s || s == "/":
		p.addFault(n, field, quote(s), "must be an absolute path without . and ..")
	}
	return n.Text
}

func (p *parser) readNetworkData(n *jsontree.Node, field string, d *Device) {
	d.IfName = p.readText(n, field, "interfaceName", optional)
	if d.IfName != "" && !isIfName(d.IfName) {
		p.addFault(n.Member("interfaceName"), field+".interfaceName", quote(d.IfName), "must be an interface name, of at most 15 bytes")
	}
	if mac := p.readText(n, field, "hardwareAddress", optional); mac != "" {
		parsed, err := net.ParseMAC(mac)
		if err != nil {
			p.addFault(n.Member("hardwareAddress"), field+".hardwareAddress", quote(mac), "must be a hardware address of 6, 8 or 20 bytes")
		}
		d.MAC = parsed.String()
	}
	for i, ip := range p.readList(n, field, "ips") {
		at := fmt.Sprintf("%s.ips[%d]", field, i)
		switch {
		case i == maxIPs:
			p.addFault(ip, at, "more than "+strconv.Itoa(maxIPs)+" addresses", "must be fewer")
		case p.checkKind(ip, at, jsontree.String):
			if _, _, err := net.ParseCIDR(ip.Text); err != nil {
				p.addFault(ip, at, quote(ip.Text), "must be an address with its prefix length, such as 192.0.2.5/24")
			}
			d.IPs = append(d.IPs, ip.Text)
		}
	}
}

// isIfName applies the kernel's rule for interface names.
func isIfName(name string) bool {
	return len(name) <= 15 && name != "." && name != ".." && !strings.ContainsAny(name, "/: \t\n")
}

func quote(s string) string { return diag.Quote(s, diag.Most) }
