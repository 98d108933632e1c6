// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"fmt"
	"strings"
)

// UpgradeContainerd is the remedy for a containerd without NRI.
const UpgradeContainerd = "install containerd 1.7 or later: Docker's packages (containerd.io), or Debian 13"

// LacksNRI reports whether a version of containerd is older than 1.7, which introduced NRI. It is
// false for an unknown version.
func LacksNRI(version string) bool { return isAtLeast(version, 0, 0) && !isAtLeast(version, 1, 7) }

// ContainerdHasNRIOn reports whether a version of containerd has NRI on by default. It is false for
// an unknown version.
func ContainerdHasNRIOn(version string) bool { return isAtLeast(version, 2, 0) }

// CRIOHasNRIOn reports whether a version of CRI-O has NRI on by default. It is false for an unknown
// version.
func CRIOHasNRIOn(version string) bool { return isAtLeast(version, 1, 30) }

// isAtLeast reports whether a version is known and not older than MAJOR.MINOR.
func isAtLeast(version string, major, minor int) bool {
	var hasMajor, hasMinor int
	n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &hasMajor, &hasMinor)
	return n == 2 && (hasMajor > major || hasMajor == major && hasMinor >= minor)
}
