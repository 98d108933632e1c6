// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/jackfield/jackfield/pkg/wording"
)

const (
	resourcePrefix = "resource:"
	fieldDevice    = "device"

	// Kubernetes' limits on the parts of a qualified name.
	maxDomain = 253
	maxName   = 63
)

// ParseDevice reads one device request as it stands in devices.jackfield.dev:
// vendor.com/class=name, alias=name or resource:NAME[/ID]. The error is an
// *Error without a key.
func ParseDevice(text string) (Device, error) {
	return parseDevice(Request{Item: text, Position: 1})
}

// ParseCDI reads CDI's own annotations (CDI specification, "Kubernetes
// annotations"): under cdi.k8s.io/NAME a comma list of fully qualified names,
// without spaces. Keys are taken in sort order.
func ParseCDI(annotations map[string]string) ([]Device, error) {
	var set deviceSet
	if err := parseCDI(annotations, &set); err != nil {
		return nil, err
	}
	return set.devices, nil
}

func parseDevices(key, value string, set *deviceSet) error {
	value, err := checkValue(key, value)
	switch {
	case err != nil:
		return err
	case value == "":
		return &Error{Key: key, Rule: "the value is empty; name a device, or write none, or take the annotation away"}
	case value == keywordNone:
		return nil
	}
	items, err := split(key, value, fieldDevice)
	if err != nil {
		return err
	}
	for _, it := range items {
		d, err := parseDevice(it.Request)
		if err != nil {
			return err
		}
		if err := set.take(d); err != nil {
			return err
		}
	}
	return nil
}

// take adds d within the limit that holds for all annotations together.
func (s *deviceSet) take(d Device) error {
	s.add(d)
	if len(s.devices) > MaxItems {
		return d.fail(fmt.Sprintf("more than %d devices are asked for in all", MaxItems))
	}
	return nil
}

func parseDevice(r Request) (Device, error) {
	if r.Item == keywordNone {
		return Device{}, r.fail("none stands alone, not in a list")
	}
	if rest, ok := strings.CutPrefix(r.Item, resourcePrefix); ok {
		return parseResource(r, rest)
	}
	qualifier, name, ok := strings.Cut(r.Item, "=")
	if !ok {
		return Device{}, r.fail(cmp.Or(otherName(r.Item), "want vendor.com/class=name, alias=name or resource:NAME[/ID]"))
	}
	if !strings.Contains(qualifier, "/") {
		return parseAlias(r, qualifier, name)
	}
	return parseQualified(r)
}

// parseQualified reads vendor/class=name by CDI's own rules.
func parseQualified(r Request) (Device, error) {
	vendor, class, name := parser.ParseDevice(r.Item)
	switch {
	case vendor == "":
		return Device{}, r.fail(cmp.Or(otherName(r.Item), "want vendor.com/class=name"))
	case parser.ValidateVendorName(vendor) != nil:
		return Device{}, r.fail("vendor " + quote(vendor) + " must begin with a letter, end with a letter or digit, and hold letters, digits, '_', '-', '.' only")
	case parser.ValidateClassName(class) != nil:
		return Device{}, r.fail("class " + quote(class) + " must begin with a letter, end with a letter or digit, and hold letters, digits, '_', '-', '.' only")
	case parser.ValidateDeviceName(name) != nil:
		return Device{}, r.fail(deviceNameRule(name))
	}
	return Device{Request: r, Kind: CDI, Vendor: vendor, Class: class, Device: name}, nil
}

// otherName is what to do where a device is named by its PCI address or by a path, "" for other text.
func otherName(text string) string {
	if address, _ := wording.PCIAddress(text); address != "" {
		return "a PCI address does not name a device; request the device under resources.limits, and write resource:DOMAIN/NAME, or resource:DOMAIN/NAME/" + address + " for one of several, in " + DevicesKey
	}
	if strings.HasPrefix(text, "/dev/") {
		return "a path does not name a device; describe the device in a CDI file of the node, and write vendor.com/class=name"
	}
	return ""
}

func deviceNameRule(name string) string {
	return "device name " + quote(name) + " must begin and end with a letter or digit, and hold letters, digits, '_', '-', '.', ':' only"
}

// parseAlias reads alias=name. An alias has no dot, so that a name that lacks
// its class, vendor.com=name, is seen for what it is.
func parseAlias(r Request, alias, name string) (Device, error) {
	switch {
	case strings.Contains(alias, ".") && parser.ValidateVendorName(alias) == nil:
		return Device{}, r.fail("the class is missing; want vendor.com/class=name")
	case alias == "" || strings.Contains(alias, ".") || parser.ValidateClassName(alias) != nil:
		return Device{}, r.fail("want vendor.com/class=name or alias=name; an alias begins with a letter, ends with a letter or digit, and holds letters, digits, '_', '-' only")
	case name == "":
		return Device{}, r.fail("the device name is missing; want alias=name")
	case parser.ValidateDeviceName(name) != nil:
		return Device{}, r.fail(deviceNameRule(name))
	}
	return Device{Request: r, Kind: Alias, Alias: alias, Device: name}, nil
}

// parseResource reads DOMAIN/NAME[/ID]. The ID is all that follows the second
// slash, since device plugins choose their IDs freely.
func parseResource(r Request, text string) (Device, error) {
	domain, rest, ok := strings.Cut(text, "/")
	name, id, hasID := strings.Cut(rest, "/")
	switch {
	case !ok || domain == "" || name == "":
		return Device{}, r.fail("want resource:DOMAIN/NAME or resource:DOMAIN/NAME/ID")
	case !isSubdomain(domain):
		return Device{}, r.fail("the resource's domain " + quote(domain) + " is not a DNS name in lower case")
	case !isQualifiedPart(name):
		return Device{}, r.fail("the resource's name " + quote(name) + " must begin and end with a letter or digit, hold letters, digits, '_', '-', '.' only, and have at most 63 bytes")
	case hasID && !isID(id):
		return Device{}, r.fail("the device ID " + quote(id) + " must have 1 to 253 printable ASCII characters and no space")
	}
	return Device{Request: r, Kind: Resource, Resource: domain + "/" + name, ID: id}, nil
}

func parseCDI(annotations map[string]string, set *deviceSet) error {
	for _, key := range cdiKeys(annotations) {
		if !isQualifiedPart(key[len(CDIPrefix):]) {
			return &Error{Key: key, Rule: "what follows " + CDIPrefix + " must begin and end with a letter or digit, hold letters, digits, '_', '-', '.' only, and have at most 63 bytes"}
		}
		value := annotations[key]
		if _, err := checkValue(key, value); err != nil {
			return err
		}
		if n := strings.Count(value, ",") + 1; n > MaxItems {
			return tooMany(key, n)
		}
		position := 0
		for text := range strings.SplitSeq(value, ",") {
			position++
			r := Request{Key: key, Item: text, Position: position}
			if strings.ContainsAny(text, asciiSpace) {
				return r.fail("want vendor.com/class=name, without spaces before or behind")
			}
			d, err := parseQualified(r)
			if err != nil {
				return err
			}
			if err := set.take(d); err != nil {
				return err
			}
		}
	}
	return nil
}

func unknownAlias(d Device, aliases map[string]string) error {
	rule := "the node's configuration has no alias " + quote(d.Alias)
	names := slices.Sorted(maps.Keys(aliases))
	if len(names) > 0 {
		rule += "; it has " + strings.Join(names, ", ")
	}
	if near := wording.Nearest(d.Alias, names...); near != "" {
		return d.fail(rule + "; did you mean " + near + "=" + d.Device + "?")
	}
	return d.fail(rule + "; write vendor.com/class=name, or add it to cdi.aliases")
}

// isSubdomain reports whether s is a DNS subdomain as Kubernetes takes it.
func isSubdomain(s string) bool {
	if len(s) > maxDomain {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// isLabel reports whether s is a DNS label in lower case.
func isLabel(s string) bool {
	if s == "" || len(s) > maxName || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// isQualifiedPart reports whether s can be the part after the slash of a
// Kubernetes qualified name.
func isQualifiedPart(s string) bool {
	if s == "" || len(s) > maxName || !isAlnum(s[0]) || !isAlnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool { return parser.IsAlphaNumeric(rune(c)) }

func isID(s string) bool {
	if s == "" || len(s) > maxDomain {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
