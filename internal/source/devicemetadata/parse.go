// SPDX-License-Identifier: Apache-2.0

package devicemetadata

import (
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Metadata is the content of one file: metadata.resource.k8s.io DeviceMetadata, v1beta1 and
// v1alpha1, which are the same.
type Metadata struct {
	Version   string // apiVersion of the object that was read
	Namespace string // metadata.namespace: of the claim
	Claim     string // metadata.name
	UID       string // metadata.uid: of the claim; "" if the driver did not write it
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

// Device is the driver's description of one allocated device. A missing value is "".
type Device struct {
	// Driver is the name in Pod Resources.
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

// Describe names the device: claim (namespace/name) and request, driver, pool and name, and where it is.
func (d *Device) Describe(claim, request string) string {
	driver := d.Driver
	if d.Name != "" {
		driver += "/" + d.Pool + "/" + d.Name
	}
	words := []string{claim, request, driver, d.PCIAddress, d.VhostUserPath, d.IfName}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
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
)

// isKnownVersion reports whether this package supports an API version.
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
			return nil, &diag.Diagnostic{File: r.file, Field: "apiVersion", Found: strings.Join(r.unknown, ", "),
				Rule: rule}
		}
		p := parser{file: r.file, root: root}
		version := p.readVersion()
		if p.fault == nil && !isKnownVersion(version) {
			if len(r.unknown) < 8 {
				r.unknown = append(r.unknown, diag.Quote(version))
			}
			continue
		}
		m := p.readMetadata(version)
		if p.fault != nil {
			return nil, p.fault
		}
		r.known++
		return m, nil
	}
}

// object is an object in the form of its JSON text, which both known versions have.
type object struct {
	Kind     string `json:"kind"`
	Metadata *struct {
		Name       string `json:"name"`
		Namespace  string `json:"namespace"`
		UID        string `json:"uid"`
		Generation uint64 `json:"generation"`
	} `json:"metadata"`
	PodClaim string `json:"podClaimName"`
	Requests []struct {
		Name    string         `json:"name"`
		Devices []deviceObject `json:"devices"`
	} `json:"requests"`
}

type deviceObject struct {
	Driver      string                `json:"driver"`
	Pool        string                `json:"pool"`
	Name        string                `json:"name"`
	Attributes  map[string]*attribute `json:"attributes"`
	NetworkData struct {
		IfName string   `json:"interfaceName"`
		IPs    []string `json:"ips"`
		MAC    string   `json:"hardwareAddress"`
	} `json:"networkData"`
}

// attribute is the value of an attribute, which has one of several types.
type attribute struct {
	Text   *string `json:"string"`
	Number *int    `json:"int"`
}

// parser reads one object, and keeps the first fault.
type parser struct {
	file  string
	root  *jsontree.Node
	fault *diag.Diagnostic
}

// addFault adds a fault of the value at a path, see [jsontree.JoinPath].
func (p *parser) addFault(path []any, found, rule string) {
	if p.fault == nil {
		n := p.root.At(path...)
		p.fault = &diag.Diagnostic{File: p.file, Line: n.Line, Column: n.Column, Field: jsontree.JoinPath("", path...),
			Found: found, Rule: rule}
	}
}

// decode stores the object in a struct.
func (p *parser) decode(into any) {
	if fault := (jsontree.Decoder{}).Decode(p.root, into); fault != nil && p.fault == nil {
		fault.File = p.file
		p.fault = fault
	}
}

// readVersion reads apiVersion, on which the meaning of all other keys depends.
func (p *parser) readVersion() string {
	var o struct {
		Version string `json:"apiVersion"`
	}
	p.decode(&o)
	p.checkRequired(o.Version, "apiVersion")
	return o.Version
}

// checkRequired checks a name or ID that must be set.
func (p *parser) checkRequired(text string, path ...any) {
	switch {
	case text != "":
		p.checkText(text, path...)
	case p.root.At(path...).Kind == jsontree.String:
		p.addFault(path, `""`, "must not be empty")
	default:
		p.addFault(path, "nothing", "is required")
	}
}

// checkText checks a name or ID: printable, without space, bounded.
func (p *parser) checkText(text string, path ...any) {
	switch {
	case len(text) > maxText:
		p.addFault(path, strconv.Itoa(len(text))+" bytes", "must have at most "+strconv.Itoa(maxText))
	case strings.ContainsFunc(text, func(r rune) bool {
		return r == ' ' || !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}):
		p.addFault(path, diag.Quote(text), "must be printable and without a space")
	}
}

// readMetadata reads an object of a version that this package supports.
func (p *parser) readMetadata(version string) *Metadata {
	var o object
	p.decode(&o)
	if p.checkRequired(o.Kind, "kind"); o.Kind != kind {
		p.addFault([]any{"kind"}, diag.Quote(o.Kind), "must be "+kind)
	}
	if o.Metadata == nil {
		p.addFault([]any{"metadata"}, "nothing", "is required")
	}
	if p.fault != nil {
		return nil
	}
	p.checkRequired(o.Metadata.Name, "metadata", "name")
	p.checkRequired(o.Metadata.Namespace, "metadata", "namespace")
	p.checkText(o.Metadata.UID, "metadata", "uid")
	p.checkText(o.PodClaim, "podClaimName")
	m := &Metadata{Version: version, Namespace: o.Metadata.Namespace, Claim: o.Metadata.Name, UID: o.Metadata.UID,
		PodClaim: o.PodClaim}
	devices := 0
	for i, in := range o.Requests {
		p.checkRequired(in.Name, "requests", i, "name")
		if devices += len(in.Devices); devices > maxDevices {
			p.addFault([]any{"requests", i, "devices"}, "more than "+strconv.Itoa(maxDevices)+" devices",
				"must be fewer")
			return nil
		}
		r := Request{Name: in.Name}
		for j := range in.Devices {
			r.Devices = append(r.Devices, p.readDevice(&in.Devices[j], "requests", i, "devices", j))
		}
		m.Requests = append(m.Requests, r)
	}
	return m
}

// readDevice reads a device. A driver in a pod can write the file, so each value is bounded.
func (p *parser) readDevice(in *deviceObject, path ...any) Device {
	d := Device{Driver: in.Driver, Pool: in.Pool, Name: in.Name, IfName: in.NetworkData.IfName, IPs: in.NetworkData.IPs}
	at := func(keys ...any) []any { return slices.Concat(path, keys) }
	p.checkRequired(d.Driver, at("driver")...)
	p.checkRequired(d.Pool, at("pool")...)
	p.checkRequired(d.Name, at("name")...)
	p.readAttributes(in.Attributes, at("attributes"), &d)

	p.checkText(d.IfName, at("networkData", "interfaceName")...)
	if d.IfName != "" && !name.IsInterface(d.IfName) {
		p.addFault(at("networkData", "interfaceName"), diag.Quote(d.IfName),
			"must be an interface name, of at most 15 bytes")
	}
	if text := in.NetworkData.MAC; text != "" {
		mac, err := net.ParseMAC(text)
		if err != nil {
			p.addFault(at("networkData", "hardwareAddress"), diag.Quote(text),
				"must be a hardware address of 6, 8 or 20 bytes")
		}
		d.MAC = mac.String()
	}
	if len(d.IPs) > maxIPs {
		p.addFault(at("networkData", "ips"), "more than "+strconv.Itoa(maxIPs)+" addresses", "must be fewer")
		return d
	}
	for i, ip := range d.IPs {
		if _, _, err := net.ParseCIDR(ip); err != nil {
			p.addFault(at("networkData", "ips", i), diag.Quote(ip),
				"must be an address with its prefix length, such as 192.0.2.5/24")
		}
	}
	return d
}

// readAttributes reads the attributes that are used here. A name without a domain is of the driver's
// own domain.
func (p *parser) readAttributes(all map[string]*attribute, path []any, d *Device) {
	ownName := func(name string) string {
		if all[name] != nil {
			return name
		}
		return d.Driver + "/" + name
	}
	if text, at := p.findText(all, path, attributePCI); text != nil {
		d.PCIAddress = p.readPCIAddress(*text, at)
	}
	if text, at := p.findText(all, path, attributeDeviceID); text != nil {
		address, isAddress := diag.PCIAddress(*text)
		switch {
		case !isAddress:
		case d.PCIAddress == "":
			d.PCIAddress = address
		case d.PCIAddress != address:
			p.addFault(at, diag.Quote(*text), attributePCI+" says "+d.PCIAddress+": both must name one device")
		}
	}
	if text, at := p.findText(all, path, ownName(attributeVhost)); text != nil {
		d.VhostUserPath = *text
		p.checkSocketPath(*text, at)
	}
	name := ownName(attributeMTU)
	switch a, at := all[name], slices.Concat(path, []any{name}); {
	case a == nil:
	case a.Number == nil:
		p.addFault(at, "no key int", `must be a number: {"int": N}`)
	case *a.Number < 68 || *a.Number > 65535:
		p.addFault(append(at, "int"), diag.Quote(strconv.Itoa(*a.Number)), "must be a whole number from 68 to 65535")
	default:
		d.MTU = *a.Number
	}
}

// findText returns the value of an attribute of type string, and its path; nil for a missing
// attribute, and after a fault.
func (p *parser) findText(all map[string]*attribute, path []any, name string) (text *string, at []any) {
	a, at := all[name], slices.Concat(path, []any{name})
	if a == nil || p.fault != nil {
		return nil, nil
	}
	if a.Text == nil {
		p.addFault(at, "no key string", `must be a string: {"string": "TEXT"}`)
	}
	return a.Text, append(at, "string")
}

// readPCIAddress reads an address in the form of sysfs.
func (p *parser) readPCIAddress(text string, path []any) string {
	address, wellFormed := diag.PCIAddress(text)
	if !wellFormed {
		p.addFault(path, diag.Quote(text), "must be a PCI address DDDD:BB:DD.F")
		if address != "" {
			p.fault.Hint = "did you mean " + address + "?"
		}
	}
	return address
}

// checkSocketPath checks the path of a device's socket (unix(7)).
func (p *parser) checkSocketPath(text string, at []any) {
	p.checkRequired(text, at...)
	switch {
	case len(text) > hostfs.MaxSocketPath:
		p.addFault(at, strconv.Itoa(len(text))+" bytes",
			"must have at most "+strconv.Itoa(hostfs.MaxSocketPath)+", the longest path of a UNIX socket")
	case !path.IsAbs(text) || path.Clean(text) != text || text == "/":
		p.addFault(at, diag.Quote(text), "must be an absolute path without . and ..")
	}
}
