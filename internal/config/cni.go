// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"path"
	"slices"

	"github.com/jackfield/jackfield/internal/base/glob"
	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/base/reserved"
)

// CNI lists the values of a CNI network's location keys. The author of a network is not trusted, so
// a network cannot use other values. The lists of paths hold patterns.
type CNI struct {
	StateDirs, ClaimsDirs, SocketDirs, DeviceInfoDirs, ConfigFiles []string
	// SocketDirSizes are sizes such as "1Mi".
	SocketDirSizes []string
}

// defaultCNI lists directories of CNI's own state directory, and of vswitches below /run. Only root can create them.
func defaultCNI() CNI {
	return CNI{
		StateDirs:      []string{"/var/lib/cni/jackfield"},
		ClaimsDirs:     []string{"/var/lib/cni/claims"},
		SocketDirs:     []string{"/run/vsw*", "/var/lib/cni/sockets"},
		DeviceInfoDirs: []string{"/var/lib/cni/devinfo"},
		SocketDirSizes: []string{"1Mi"},
	}
}

// locationKeys maps the keys of a CNI network that choose a directory, a size or a configuration
// file to the keys of the node's configuration that list the permitted values.
var locationKeys = map[string]string{
	"stateDir": "cni.stateDirs", "claimsDir": "cni.claimsDirs", "socketDir": "cni.socketDirs",
	"deviceInfoDir": "cni.deviceInfoDirs",
	"socketDirSize": "cni.socketDirSizes", "configFile": "cni.configFiles",
}

// LocationList returns the key of the node's configuration that lists the permitted values of a
// network's location key.
func LocationList(key string) string { return locationKeys[key] }

// AllowsLocation reports whether a CNI network can use a value for a location key: the
// configuration lists the value, or uses it itself.
func (c *Config) AllowsLocation(key, value string) bool {
	// Each list is extended by the value that the node itself uses, so that a network can always repeat the
	// node's own configuration.
	switch key {
	case "stateDir":
		return matchesPath(value, c.CNI.StateDirs)
	case "claimsDir":
		return matchesPath(value, append(slices.Clone(c.CNI.ClaimsDirs), path.Join(c.StateDir, "claims")))
	case "socketDir":
		return matchesPath(value, slices.Concat(c.CNI.SocketDirs, c.Sockets.Roots))
	case "deviceInfoDir":
		return matchesPath(value, append(slices.Clone(c.CNI.DeviceInfoDirs), c.DeviceInfo.CNIDir))
	case "configFile":
		return matchesPath(value, append(slices.Clone(c.CNI.ConfigFiles), DefaultPath))
	case "socketDirSize":
		size, ok := quantity.ParseSize(value)
		return ok && slices.ContainsFunc(append(slices.Clone(c.CNI.SocketDirSizes), c.Sockets.DirectorySize),
			func(s string) bool {
				listed, ok := quantity.ParseSize(s)
				return ok && listed == size
			})
	}
	return false
}

// matchesPath reports whether a clean path matches a pattern. /var/run equals /run.
func matchesPath(value string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		g, err := glob.CompilePath(reserved.WithoutVar(pattern))
		return err == nil && g.Match(reserved.WithoutVar(value))
	})
}

// locationPattern requires a pattern for directories that Jackfield does not share.
func locationPattern(s string) string {
	_, err := glob.CompilePath(s)
	return cmp.Or(ownDirectory(s, "attachments", "attachments are not kept in"),
		require(err == nil, "must be a path, in which * stands for any characters but /"))
}

// configFilePattern requires a pattern of paths below /etc.
func configFilePattern(s string) string {
	_, err := glob.CompilePath(s)
	return cmp.Or(absolute(s), require(err == nil && contains("/etc", s), "must be the path of a file below /etc"))
}
