// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
)

const (
	maxVendor          = 253 // CDI, "Kind": the prefix, a DNS subdomain
	maxClass           = 63  // CDI, "Kind": the name
	maxAnnotationName  = 63
	maxAnnotationBytes = 256 << 10
	maxInterface       = 15 // linux/if.h, IFNAMSIZ less the NUL
)

// checkKind is nil for "vendor/class" as CDI has it.
func checkKind(kind string) error {
	vendor, class := parser.ParseQualifier(kind)
	if vendor == "" {
		return fmt.Errorf("must be a vendor and a class, such as vendor.com/gpu")
	}
	const shape = "must be letters, digits, '-', '_' and '.', with a letter first and a letter or a digit last"
	if parser.ValidateVendorName(vendor) != nil {
		return fmt.Errorf("the vendor, before the /, %s", shape)
	}
	if parser.ValidateClassName(class) != nil {
		return fmt.Errorf("the class, after the /, %s", shape)
	}
	if len(vendor) > maxVendor {
		return fmt.Errorf("the vendor has %d characters, at most %d are allowed", len(vendor), maxVendor)
	}
	if len(class) > maxClass {
		return fmt.Errorf("the class has %d characters, at most %d are allowed", len(class), maxClass)
	}
	return nil
}

// checkName is nil for a device name, the part after the "=".
func checkName(name string) error {
	if parser.ValidateDeviceName(name) != nil {
		return fmt.Errorf("must be letters, digits, '-', '_', '.' and ':', with a letter or a digit at both ends")
	}
	return nil
}

// checkQualified is nil for "vendor/class=name". What it takes is what the CDI
// libraries take; how long the parts are, the files are held to.
func checkQualified(name string) error {
	_, _, _, err := parser.ParseQualifiedName(name)
	if err == nil {
		return nil
	}
	vendor, class, device := parser.ParseDevice(name)
	if vendor == "" {
		return fmt.Errorf("must be a vendor, a class and a name, such as vendor.com/class=name")
	}
	if kind := checkKind(vendor + "/" + class); kind != nil {
		return kind
	}
	if own := checkName(device); own != nil {
		return fmt.Errorf("the name, after the =, %w", own)
	}
	return err
}

// checkAnnotationKey is nil for what Kubernetes calls a qualified name: an optional
// DNS subdomain and "/", and a name of at most 63 characters. Case does not matter.
func checkAnnotationKey(key string) error {
	name := key
	if prefix, rest, ok := strings.Cut(key, "/"); ok {
		name = rest
		if !isSubdomain(prefix) {
			return fmt.Errorf("the part before the / must be a DNS subdomain of at most %d characters", maxVendor)
		}
	}
	switch {
	case name == "":
		return fmt.Errorf("the name is empty")
	case len(name) > maxAnnotationName:
		return fmt.Errorf("the name has %d characters, at most %d are allowed", len(name), maxAnnotationName)
	}
	for i, c := range []byte(name) {
		inner := i > 0 && i < len(name)-1
		if !alphanumeric(c) && !(inner && (c == '-' || c == '_' || c == '.')) {
			return fmt.Errorf("the name must be letters, digits, '-', '_' and '.', with a letter or a digit at both ends")
		}
	}
	return nil
}

func isSubdomain(s string) bool {
	if len(s) == 0 || len(s) > maxVendor {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" {
			return false
		}
		for i, c := range []byte(label) {
			if !alphanumeric(c) && !(c == '-' && i > 0 && i < len(label)-1) {
				return false
			}
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
