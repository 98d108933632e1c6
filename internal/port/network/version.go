// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// Versions are the supported versions of the specification. Results of 0.3.0 and 0.3.1 are equal.
var Versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// CheckVersion checks the version of a configuration.
func CheckVersion(version string) error {
	if slices.Contains(Versions, version) {
		return nil
	}
	return attach.Fail(types.ErrIncompatibleCNIVersion, "incompatible CNI versions",
		"the configuration has version %q, the plugin supports %s",
		diag.Excerpt(version, diag.MaxExcerpt), strings.Join(Versions, ", "))
}
