// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
)

const (
	resourcePrefix = "resource:"
	socketPrefix   = "socket:"
	fieldDevice    = "device"

	maxDeviceID = 253
)

func parseDevices(key, value string, set *deviceSet) error {
	value, err := checkValue(key, value)
	switch {
	case err != nil:
		return err
	case value == "":
		return &Error{Key: key, Rule: "the value is empty; name a device, or write none, or remove the annotation"}
	case value == keywordNone:
		return nil
	}
	items, err := splitItems(key, value, fieldDevice)
	if err != nil {
		return err
	}
	for _, it := range items {
		d, err := parseDevice(it.Request)
		if err != nil {
			return err
		}
		if err := set.addDevice(d); err != nil {
			return err
		}
	}
	return nil
}

func parseDevice(r Request) (Device, error) {
	if r.Item == keywordNone {
		return Device{}, r.newError("none must be the only item, not part of a list")
	}
	if rest, ok := strings.CutPrefix(r.Item, resourcePrefix); ok {
		return parseResource(r, rest)
	}
	if name, ok := strings.CutPrefix(r.Item, socketPrefix); ok {
		return parseSocket(r, name)
	}
	qualifier, name, ok := strings.Cut(r.Item, "=")
	if !ok {
		return Device{}, r.newError(cmp.Or(addressOrPathRule(r.Item),
			"must be vendor.com/class=name, alias=name, resource:NAME[/ID] or socket:NAME"))
	}
	if !strings.Contains(qualifier, "/") {
		return parseAlias(r, qualifier, name)
	}
	return parseQualified(r)
}

// parseQualified parses vendor/class=name by CDI's own rules.
func parseQualified(r Request) (Device, error) {
	vendor, class, name := parser.ParseDevice(r.Item)
	switch {
	case vendor == "":
		return Device{}, r.newError(cmp.Or(addressOrPathRule(r.Item), "must be vendor.com/class=name"))
	case parser.ValidateVendorName(vendor) != nil:
		return Device{}, r.newError("vendor " + diag.Quote(vendor) +
			" must begin with a letter, end with a letter or digit, and hold letters, digits, '_', '-', '.' only")
	case parser.ValidateClassName(class) != nil:
		return Device{}, r.newError("class " + diag.Quote(class) +
			" must begin with a letter, end with a letter or digit, and hold letters, digits, '_', '-', '.' only")
	case parser.ValidateDeviceName(name) != nil:
		return Device{}, r.newError(deviceNameRule(name))
	}
	return Device{Request: r, Kind: CDI, Name: r.Item}, nil
}

// addressOrPathRule returns the remedy if a device is requested by its PCI address or by a path, or
// "".
func addressOrPathRule(text string) string {
	if address, _ := diag.PCIAddress(text); address != "" {
		return "a PCI address does not name a device; request the device under resources.limits, and write " +
			"resource:DOMAIN/NAME, or resource:DOMAIN/NAME/" + address + " for one of several, in " + DevicesKey
	}
	if strings.HasPrefix(text, "/dev/") {
		return "a path does not name a device; describe the device in a CDI file of the node, and write " +
			"vendor.com/class=name"
	}
	return ""
}

func deviceNameRule(name string) string {
	return "device name " + diag.Quote(name) + " must begin and end with a letter or digit, and hold letters, " +
		"digits, '_', '-', '.', ':' only"
}

// parseAlias parses alias=name. An alias has no dot, so vendor.com=name without a class gets a
// separate error.
func parseAlias(r Request, alias, name string) (Device, error) {
	switch {
	case strings.Contains(alias, ".") && parser.ValidateVendorName(alias) == nil:
		return Device{}, r.newError("the class is missing: must be vendor.com/class=name")
	case alias == "" || strings.Contains(alias, ".") || parser.ValidateClassName(alias) != nil:
		return Device{}, r.newError("must be vendor.com/class=name or alias=name; an alias begins with a letter, " +
			"ends with a letter or digit, and holds letters, digits, '_', '-' only")
	case name == "":
		return Device{}, r.newError("the device name is missing: must be alias=name")
	case parser.ValidateDeviceName(name) != nil:
		return Device{}, r.newError(deviceNameRule(name))
	}
	return Device{Request: r, Kind: Alias, Name: r.Item}, nil
}

// parseResource parses DOMAIN/NAME[/ID]. Device plugins choose their IDs freely, so the ID is
// everything after the second slash.
func parseResource(r Request, text string) (Device, error) {
	domain, rest, ok := strings.Cut(text, "/")
	resource, id, hasID := strings.Cut(rest, "/")
	switch {
	case !ok || domain == "" || resource == "":
		return Device{}, r.newError("must be resource:DOMAIN/NAME or resource:DOMAIN/NAME/ID")
	case !name.IsSubdomain(domain):
		return Device{}, r.newError("the resource's domain " + diag.Quote(domain) + " is not a DNS name in lower case")
	case !name.IsQualifiedPart(resource):
		return Device{}, r.newError("the resource's name " + diag.Quote(resource) +
			" must begin and end with a letter or digit, hold letters, digits, '_', '-', '.' only, and have at " +
			"most 63 bytes")
	case hasID && !isDeviceID(id):
		return Device{}, r.newError("the device ID " + diag.Quote(id) +
			" must have 1 to 253 printable ASCII characters and no space")
	}
	return Device{Request: r, Kind: Resource, Name: domain + "/" + resource, ID: id}, nil
}

// isDeviceID reports whether s can be a device plugin's ID: printable ASCII without a space.
func isDeviceID(s string) bool {
	return s != "" && len(s) <= maxDeviceID && !strings.ContainsFunc(s,
		func(r rune) bool { return r <= ' ' || r > '~' })
}

// parseSocket parses the name of a socket in the node's configuration.
func parseSocket(r Request, socket string) (Device, error) {
	if !name.IsLabel(socket) {
		return Device{}, r.newError("must be socket:NAME; the name has 1 to 63 lower-case letters, digits and '-', " +
			"and begins and ends with a letter or digit")
	}
	return Device{Request: r, Kind: NamedSocket, Name: socket}, nil
}

func parseCDI(annotations map[string]string, set *deviceSet) error {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, CDIPrefix) {
			continue
		}
		if !name.IsQualifiedPart(key[len(CDIPrefix):]) {
			return &Error{Key: key, Rule: "the name after " + CDIPrefix +
				" must begin and end with a letter or digit, hold letters, digits, '_', '-', '.' only, and have at " +
				"most 63 bytes"}
		}
		value := annotations[key]
		if _, err := checkValue(key, value); err != nil {
			return err
		}
		if n := strings.Count(value, ",") + 1; n > MaxItems {
			return tooManyItems(key, n)
		}
		position := 0
		for text := range strings.SplitSeq(value, ",") {
			position++
			r := Request{Key: key, Item: text, Position: position}
			if strings.ContainsAny(text, asciiSpace) {
				return r.newError("must be vendor.com/class=name, without spaces around it")
			}
			d, err := parseQualified(r)
			if err != nil {
				return err
			}
			if err := set.addDevice(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// UnknownAlias returns the rule for an alias that the configuration lacks, with the correct
// spelling if there is a similar one. aliases maps an alias to vendor.com/class.
func UnknownAlias(alias, device string, aliases map[string]string) string {
	text := "the node's configuration has no alias " + diag.Quote(alias)
	names := slices.Sorted(maps.Keys(aliases))
	if len(names) > 0 {
		text += "; it has " + strings.Join(names, ", ")
	}
	if near := diag.Nearest(alias, names...); near != "" {
		return text + "; did you mean " + near + "=" + device + "?"
	}
	return text + "; write vendor.com/class=name, or add it to cdi.aliases"
}
