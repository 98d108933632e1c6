// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"maps"
	"path"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// The author of a network is not trusted. A user of Kubernetes may be permitted to write networks,
// and can place root's files elsewhere on the host, for example in volumes. So a network's value
// for a location is accepted only if the node's configuration lists it.

// defaultLocations are the values of the location keys that need no entry in the node's
// configuration.
var defaultLocations = map[string]string{
	"socketDir": attach.DefaultSocketDir, "stateDir": attach.DefaultStateDir, "claimsDir": attach.DefaultClaimsDir,
	"deviceInfoDir": deviceinfo.DefaultCNIDir, "configFile": config.DefaultPath, "socketDirSize": "",
}

// ApplyLocations sets the network's locations, or returns an error for unlisted ones. permissive is
// set for DEL and GC: ADD has rejected a network with an unlisted location, so nothing exists
// there, and the location is ignored.
func (c *Config) ApplyLocations(permissive bool) error {
	c.SocketDirSize, c.ConfigFile = 0, config.DefaultPath
	for _, key := range slices.Sorted(maps.Keys(c.chosen)) {
		text := c.chosen[key]
		if reserved.WithoutVar(text) == reserved.WithoutVar(defaultLocations[key]) {
			continue
		}
		node, err := c.NodeConfig()
		switch {
		case err != nil && permissive && !c.mayHaveRecord():
			continue
		case err != nil:
			return err
		case node.AllowsLocation(key, text):
			c.setLocation(key, text)
		case !permissive:
			return c.unlistedLocation(key, text)
		}
	}
	if permissive && c.chosen["stateDir"] == "" {
		c.findStateDir()
	}
	return nil
}

// findStateDir sets StateDir to the listed directory that has the attachment's record. Multus 4.3 can drop stateDir
// from the configuration of DEL, so an absent stateDir does not mean that ADD wrote the record into the default
// directory.
func (c *Config) findStateDir() {
	if node, err := c.NodeConfig(); err == nil {
		c.StateDir = cmp.Or(attach.StateDirOf(c.Root, node, c.Key), c.StateDir)
	}
}

// setLocation sets a location that was checked.
func (c *Config) setLocation(key, text string) {
	switch key {
	case "configFile", "socketDirSize":
		c.SetValue(key, text)
	default:
		*map[string]*string{"socketDir": &c.SocketDir, "stateDir": &c.StateDir, "claimsDir": &c.ClaimsDir,
			"deviceInfoDir": &c.InfoDir}[key] = text
	}
}

// unlistedLocation is the error for a location that the node's configuration does not list. Without the list, the
// author of a network could make root write into any directory.
func (c *Config) unlistedLocation(key, text string) error {
	return attach.Fail(types.ErrInvalidNetworkConfig, "invalid network configuration: "+key+": "+diag.Quote(text),
		"%sinvalid value %s: a network can choose only a location that the node's configuration lists: remove %s "+
			"from the network, or add the value to %s of %s",
		c.Place(key), diag.Quote(text), key, config.LocationList(key), config.DefaultPath)
}

// mayHaveRecord reports whether the network's directory for records contains a record of the
// attachment. GC has no attachment, and the directory can have other records.
func (c *Config) mayHaveRecord() bool {
	dir := c.chosen["stateDir"]
	if c.ContainerID == "" {
		return dir != ""
	}
	_, err := c.Root.Lstat(path.Join(dir, c.Key.FileName()))
	return dir != "" && err == nil
}
