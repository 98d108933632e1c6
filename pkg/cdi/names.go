// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/jackfield/jackfield/internal/base/name"
)

const (
	maxVendor          = 253 // CDI, "Kind": the prefix, a DNS subdomain
	maxClass           = 63  // CDI, "Kind": the name
	maxAnnotationBytes = 256 << 10
)

// checkKind returns why a text is not "vendor/class" by the rules of CDI, or nil.
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

// checkName returns why a text is not a device name, the part after the "=", or nil.
func checkName(name string) error {
	if parser.ValidateDeviceName(name) != nil {
		return fmt.Errorf("must be letters, digits, '-', '_', '.' and ':', with a letter or a digit at both ends")
	}
	return nil
}

// QualifiedName returns "vendor/class=name".
func QualifiedName(vendor, class, name string) string {
	return parser.QualifiedName(vendor, class, name)
}

// ParseQualifiedName splits "vendor/class=name". The error is a *NameError. It accepts the names that upstream
// accepts: the maximum length of the parts holds for spec files only.
func ParseQualifiedName(qualified string) (vendor, class, name string, err error) {
	if vendor, class, name, err = parser.ParseQualifiedName(qualified); err == nil {
		return vendor, class, name, nil
	}
	vendor, class, device := parser.ParseDevice(qualified)
	rule := err.Error()
	if vendor == "" {
		rule = "must be a vendor, a class and a name, such as vendor.com/class=name"
	} else if kind := checkKind(vendor + "/" + class); kind != nil {
		rule = kind.Error()
	} else if own := checkName(device); own != nil {
		rule = "the name, after the =, " + own.Error()
	}
	return "", "", "", &NameError{Name: qualified, Rule: rule}
}

// GenerateSpecName returns the name, without extension, of the spec file of a kind that exists once on a host.
func GenerateSpecName(vendor, class string) string { return vendor + "-" + class }

// GenerateTransientSpecName returns the name, without extension, of a spec file that lives as long as an entity of
// the given ID, such as a container or a resource claim: "vendor.com-class_id".
func GenerateTransientSpecName(vendor, class, id string) (string, error) {
	kind := vendor + "/" + class
	if err := checkKind(kind); err != nil {
		return "", fmt.Errorf("name transient CDI spec of kind %q: %w: %w", kind, err, errdefs.ErrInvalidArgument)
	}
	if id == "" || strings.IndexByte(id, 0) >= 0 {
		return "", fmt.Errorf("name transient CDI spec of kind %q: the ID %q is empty or has a NUL: %w",
			kind, id, errdefs.ErrInvalidArgument)
	}
	return GenerateSpecName(vendor, class) + "_" + strings.ReplaceAll(id, "/", "_"), nil
}

// validateAnnotationKey returns why a text is not a qualified name of Kubernetes: an optional DNS subdomain and "/",
// and a name of at most 63 characters. Case does not matter.
func validateAnnotationKey(key string) error {
	last := key
	if prefix, rest, ok := strings.Cut(key, "/"); ok {
		last = rest
		if !name.IsSubdomainInAnyCase(prefix) {
			return fmt.Errorf("the part before the / must be a DNS subdomain of at most %d characters", maxVendor)
		}
	}
	if !name.IsQualifiedPart(last) {
		return fmt.Errorf("the name must be 1 to 63 letters, digits, '-', '_' and '.', with a letter or a digit at both ends")
	}
	return nil
}

// naturalCompare orders names with numbers in them by the numbers: 2 before 10.
func naturalCompare(a, b string) int {
	textOrder := strings.Compare(a, b)
	for a != "" && b != "" {
		x, y := leadingDigits(a), leadingDigits(b)
		switch {
		case x != "" && y != "":
			a, b = a[len(x):], b[len(y):]
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Or(len(x)-len(y), strings.Compare(x, y)); c != 0 {
				return c
			}
		case a[0] != b[0]:
			return int(a[0]) - int(b[0])
		default:
			a, b = a[1:], b[1:]
		}
	}
	return cmp.Or(len(a)-len(b), textOrder)
}

func leadingDigits(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}
