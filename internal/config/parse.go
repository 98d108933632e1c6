// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// Parse parses a configuration file. file is its path, for messages. An empty file is [Default]. The error
// joins a *diag.Diagnostic for each fault, in the order of the file.
func Parse(data []byte, file string) (*Config, error) {
	d := &decoder{file: file, fields: make(map[string]*yaml.Node)}
	c := Default()
	c.file, c.text, c.fields = file, string(data), d.fields
	if root := d.document(data); root != nil {
		d.rejectAnchorsAndTags(root)
		if len(d.faults) == 0 {
			d.readObject("", root, d.members(c)...)
			d.checkDisjoint(c, root)
		}
	}
	if len(d.faults) > 0 {
		return nil, joinFaults(d.faults)
	}
	return c, nil
}

// document parses the single YAML document of a file. It returns nil for an empty file, and after a
// fault.
func (d *decoder) document(data []byte) *yaml.Node {
	var document, second yaml.Node
	switch {
	case len(data) > MaxSize:
		d.addFault("", &document, "", fmt.Sprintf("the file has %d bytes; at most %d are read: use patterns in "+
			"place of long lists of names", len(data), MaxSize))
		return nil
	case !utf8.Valid(data):
		d.addFault("", &document, "", "the file is not UTF-8")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		err = decoder.Decode(&second)
	}
	switch {
	case err == nil:
		d.addFault("", &second, "", "a second YAML document; the file must hold exactly one")
		return nil
	case !errors.Is(err, io.EOF):
		fault := diag.YAMLError(err)
		fault.File = d.file
		d.faults = append(d.faults, fault)
		return nil
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	return root
}

// Keys returns the top-level keys of a configuration.
func Keys() []string { return keysOf(new(decoder).members(Default())) }

// members returns the top-level keys with readers that decode their values into c.
func (d *decoder) members(c *Config) []member {
	return []member{
		{"cdi", d.readSection(
			member{"specDirs", d.readTexts(&c.CDI.SpecDirs, absolute)},
			member{"aliases", d.readTextMap(&c.CDI.Aliases, aliasName, cdiKind)},
			member{"extensions", d.readTexts(&c.CDI.Extensions, extension)},
		)},
		{"sockets", d.readSection(
			member{"roots", d.readTexts(&c.Sockets.Roots, socketRoot)},
			member{"access", readEnum(d, &c.Sockets.Access, "acl", "group", "owner")},
			member{"staging", readEnum(d, &c.Sockets.Staging, "auto", "mount", "directory")},
			member{"user", d.readText(&c.Sockets.User, orNone(userIDs))},
			member{"directorySize", d.readText(&c.Sockets.DirectorySize, orNone(directorySize))},
			member{"selinuxLabel", d.readText(&c.Sockets.SELinuxLabel, orNone(selinuxLabel))},
			member{"named", readMap(d, &c.Sockets.Named, socketName, d.readNamedSocket)},
		)},
		{"deviceInfo", d.readSection(
			member{"cniDir", d.readText(&c.DeviceInfo.CNIDir, absolute)},
			member{"dpDir", d.readText(&c.DeviceInfo.DPDir, absolute)},
		)},
		{"cni", d.readSection(
			member{"stateDirs", d.readTextsOrNone(&c.CNI.StateDirs, locationPattern)},
			member{"claimsDirs", d.readTextsOrNone(&c.CNI.ClaimsDirs, locationPattern)},
			member{"socketDirs", d.readTextsOrNone(&c.CNI.SocketDirs, locationPattern)},
			member{"deviceInfoDirs", d.readTextsOrNone(&c.CNI.DeviceInfoDirs, locationPattern)},
			member{"socketDirSizes", d.readTextsOrNone(&c.CNI.SocketDirSizes, directorySize)},
			member{"configFiles", d.readTextsOrNone(&c.CNI.ConfigFiles, configFilePattern)},
		)},
		{"multus", d.readSection(
			member{"cacheDir", d.readText(&c.Multus.CacheDir, absolute)},
		)},
		{"kubelet", d.readSection(
			member{"podResourcesSocket", d.readText(&c.Kubelet.PodResourcesSocket, absolute)},
			member{"pluginsDir", d.readText(&c.Kubelet.PluginsDir, absolute)},
			member{"required", d.readBoolean(&c.Kubelet.Required)},
		)},
		{"hook", d.readSection(
			member{"undeliverable", readEnum(d, &c.Hook.Undeliverable, UndeliverableError, UndeliverableWarn)},
			member{"askedBy", d.readText(&c.Hook.AskedBy, orNone(keyValue))},
		)},
		{"hooks", d.readSection(
			member{"dirs", d.readTexts(&c.Hooks.Dirs, absolute)},
		)},
		{"runtime", d.readSection(
			member{"socket", d.readText(&c.Runtime.Socket, orNone(absolute))},
		)},
		{"missed", readEnum(d, &c.Missed, MissedReport, MissedEvict)},
		{"stateDir", d.readText(&c.StateDir, stateDir)},
		{"dialects", orEmpty(readItems(d, &c.Dialects, d.readDialect))},
		{"vswitches", orEmpty(d.readVswitches(&c.Vswitches))},
		{"metrics", d.readSection(
			member{"listen", d.readText(&c.Metrics.Listen, orNone(listenAddress))},
			member{"pprof", d.readBoolean(&c.Metrics.PProf)},
		)},
		{"audit", d.readSection(
			member{"file", d.readText(&c.AuditLog.File, orNone(absolute))},
		)},
		{"policy", d.readSection(
			member{"mode", readEnum(d, &c.Policy.Mode, policy.Enforce, policy.Audit)},
			member{"rules", orEmpty(readItems(d, &c.Policy.Rules, d.readRule))},
		)},
		{"validate", d.readSection(
			member{"devices", d.readBoolean(&c.Validate.Devices)},
			member{"mounts", d.readBoolean(&c.Validate.Mounts)},
			member{"except", d.readTexts(&c.Validate.Except, pluginName)},
		)},
		{"compat", d.readSection(
			member{"deviceInjector", d.readBoolean(&c.Compat.DeviceInjector)},
		)},
	}
}

func (d *decoder) readSection(members ...member) reader {
	return func(field string, node *yaml.Node) { d.readObject(field, node, members...) }
}

// checkDisjoint rejects socket roots and named sockets that overlap with the directory in which
// Jackfield creates the containers' directories.
func (d *decoder) checkDisjoint(c *Config, root *yaml.Node) {
	for i, dir := range c.Sockets.Roots {
		if !contains(dir, c.StateDir) && !contains(c.StateDir+"/containers", dir) {
			continue
		}
		field := "sockets.roots[" + strconv.Itoa(i) + "]"
		// If the roots are the defaults, the fault is in stateDir.
		d.addFault(field, d.nodeOf(field, d.nodeOf("stateDir", root)), diag.Quote(dir),
			"the directory must not contain stateDir, "+diag.Quote(c.StateDir)+", nor be in its containers/")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sockets.Named)) {
		if file := c.Sockets.Named[name].Path; contains(c.StateDir+"/containers", file) {
			field := "sockets.named." + name + ".path"
			d.addFault(field, d.nodeOf(field, root), diag.Quote(file),
				"the socket must not be in containers/ of stateDir, "+diag.Quote(c.StateDir))
		}
	}
}

func (d *decoder) readDialect(at string, element *yaml.Node, one *Dialect) {
	ok := d.readObject(at, element,
		member{"match", d.readSection(
			member{"network", d.readText(&one.Match.Network, pattern)},
			member{"resource", d.readText(&one.Match.Resource, pattern)},
			member{"driver", d.readText(&one.Match.Driver, pattern)},
		)},
		member{"use", readEnum(d, &one.Use, dialectNames()...)},
		member{"creator", readEnum(d, &one.Creator, SideHost, SideApplication)},
		member{"path", readEnum(d, &one.Path, SideHost, SideContainer)},
	)
	switch {
	case !ok:
	case one.Match == DialectMatch{}:
		d.addFault(at+".match", element, "nothing", "say what the dialect is for: network, resource or both, or driver")
	case one.Match.Driver != "" && one.Match != DialectMatch{Driver: one.Match.Driver}:
		d.addFault(at+".match", element, "driver beside network or resource",
			"a claim's device has a driver, and no other device has: write two dialects")
	case one.Use == "" && one.Creator == "" && one.Path == "":
		d.addFault(at, element, "nothing but a match", "say what is different: use, creator or path")
	}
	if one.Use == "" && one.Match.Driver != "" {
		one.Use = DeviceMetadata
	}
	one.Use = cmp.Or(one.Use, Specification)
}
