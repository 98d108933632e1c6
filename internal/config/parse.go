// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/schema"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// Parse parses a configuration file. file is its path, for messages. An empty file is [Default]. The error
// joins a *diag.Diagnostic for each fault, in the order of the file.
func Parse(data []byte, file string) (*Config, error) {
	d := decoder{schema.NewDecoder(file)}
	c := Default()
	c.file, c.text, c.fields = file, string(data), d.Fields
	if root := d.document(data); root != nil && root.Kind != jsontree.Null {
		d.ReadObject("", root, d.members(c)...)
		d.checkDisjoint(c, root)
	}
	if len(d.Faults) > 0 {
		return nil, joinFaults(d.Faults)
	}
	return c, nil
}

// decoder decodes a configuration file.
type decoder struct{ *schema.Decoder }

// document parses the single YAML document of a file. It returns nil for an empty file, and for a file that cannot be
// decoded.
func (d decoder) document(data []byte) *jsontree.Node {
	switch {
	case len(data) > MaxSize:
		d.AddFault("", &jsontree.Node{}, "", fmt.Sprintf("the file has %d bytes; at most %d are read: use patterns in "+
			"place of long lists of names", len(data), MaxSize))
		return nil
	case !utf8.Valid(data):
		d.AddFault("", &jsontree.Node{}, "", "the file is not UTF-8")
		return nil
	}
	root, faults := schema.ParsePlain(string(data))
	for _, fault := range faults {
		fault.File = d.File
	}
	d.Faults = faults
	return root
}

// members returns the top-level keys with readers that decode their values into c.
func (d decoder) members(c *Config) []schema.Member {
	return []schema.Member{
		schema.Key("cdi", d.Section(
			schema.Key("specDirs", d.Texts(&c.CDI.SpecDirs, absolute)),
			schema.Key("aliases", d.TextMap(&c.CDI.Aliases, aliasName, cdiKind)),
			schema.Key("extensions", d.Texts(&c.CDI.Extensions, extension)),
		)),
		schema.Key("sockets", d.Section(
			schema.Key("roots", d.Texts(&c.Sockets.Roots, socketRoot)),
			schema.Key("access", schema.Enum(d.Decoder, &c.Sockets.Access, "acl", "group", "owner")),
			schema.Key("staging", schema.Enum(d.Decoder, &c.Sockets.Staging, "auto", "mount", "directory")),
			schema.Key("user", d.Text(&c.Sockets.User, orNone(userIDs))),
			schema.Key("directorySize", d.Text(&c.Sockets.DirectorySize, orNone(directorySize))),
			schema.Key("selinuxLabel", d.Text(&c.Sockets.SELinuxLabel, orNone(selinuxLabel))),
			schema.Key("named", schema.Map(d.Decoder, &c.Sockets.Named, socketName, d.readNamedSocket)),
		)),
		schema.Key("deviceInfo", d.Section(
			schema.Key("cniDir", d.Text(&c.DeviceInfo.CNIDir, absolute)),
			schema.Key("dpDir", d.Text(&c.DeviceInfo.DPDir, absolute)),
		)),
		schema.Key("cni", d.Section(
			schema.Key("stateDirs", d.TextsOrNone(&c.CNI.StateDirs, locationPattern)),
			schema.Key("claimsDirs", d.TextsOrNone(&c.CNI.ClaimsDirs, locationPattern)),
			schema.Key("socketDirs", d.TextsOrNone(&c.CNI.SocketDirs, locationPattern)),
			schema.Key("deviceInfoDirs", d.TextsOrNone(&c.CNI.DeviceInfoDirs, locationPattern)),
			schema.Key("socketDirSizes", d.TextsOrNone(&c.CNI.SocketDirSizes, directorySize)),
			schema.Key("configFiles", d.TextsOrNone(&c.CNI.ConfigFiles, configFilePattern)),
		)),
		schema.Key("multus", d.Section(
			schema.Key("cacheDir", d.Text(&c.Multus.CacheDir, absolute)),
		)),
		schema.Key("kubelet", d.Section(
			schema.Key("podResourcesSocket", d.Text(&c.Kubelet.PodResourcesSocket, absolute)),
			schema.Key("podsSocket", d.Text(&c.Kubelet.PodsSocket, absolute)),
			schema.Key("pluginsDir", d.Text(&c.Kubelet.PluginsDir, absolute)),
			schema.Key("required", d.Boolean(&c.Kubelet.Required)),
		)),
		schema.Key("hook", d.Section(
			schema.Key("undeliverable", schema.Enum(d.Decoder, &c.Hook.Undeliverable, UndeliverableError, UndeliverableWarn)),
			schema.Key("askedBy", d.Text(&c.Hook.AskedBy, orNone(keyValue))),
		)),
		schema.Key("hooks", d.Section(
			schema.Key("dirs", d.Texts(&c.Hooks.Dirs, absolute)),
		)),
		schema.Key("runtime", d.Section(
			schema.Key("socket", d.Text(&c.Runtime.Socket, orNone(absolute))),
		)),
		schema.Key("missed", schema.Enum(d.Decoder, &c.Missed, MissedReport, MissedEvict)),
		schema.Key("stateDir", d.Text(&c.StateDir, stateDir)),
		schema.Key("dialects", schema.OrEmpty(schema.Items(d.Decoder, &c.Dialects, d.readDialect))),
		schema.Key("vswitches", schema.OrEmpty(d.readVswitches(&c.Vswitches))),
		schema.Key("metrics", d.Section(
			schema.Key("listen", d.Text(&c.Metrics.Listen, orNone(listenAddress))),
			schema.Key("pprof", d.Boolean(&c.Metrics.PProf)),
		)),
		schema.Key("audit", d.Section(
			schema.Key("file", d.Text(&c.AuditLog.File, orNone(absolute))),
		)),
		schema.Key("policy", d.Section(
			schema.Key("mode", schema.Enum(d.Decoder, &c.Policy.Mode, policy.Enforce, policy.Audit)),
			schema.Key("rules", schema.OrEmpty(schema.Items(d.Decoder, &c.Policy.Rules, d.readRule))),
		)),
		schema.Key("validate", d.Section(
			schema.Key("devices", d.Boolean(&c.Validate.Devices)),
			schema.Key("mounts", d.Boolean(&c.Validate.Mounts)),
			schema.Key("except", d.Texts(&c.Validate.Except, pluginName)),
		)),
		schema.Key("compat", d.Section(
			schema.Key("deviceInjector", d.Boolean(&c.Compat.DeviceInjector)),
		)),
	}
}

// checkDisjoint rejects socket roots and named sockets that overlap with the directory in which
// Jackfield creates the containers' directories.
func (d decoder) checkDisjoint(c *Config, root *jsontree.Node) {
	for i, dir := range c.Sockets.Roots {
		if !contains(dir, c.StateDir) && !contains(c.StateDir+"/containers", dir) {
			continue
		}
		field := "sockets.roots[" + strconv.Itoa(i) + "]"
		// If the roots are the defaults, the fault is in stateDir.
		d.AddFault(field, d.NodeOf(field, d.NodeOf("stateDir", root)), diag.Quote(dir),
			"the directory must not contain stateDir, "+diag.Quote(c.StateDir)+", nor be in its containers/")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sockets.Named)) {
		if file := c.Sockets.Named[name].Path; contains(c.StateDir+"/containers", file) {
			field := "sockets.named." + name + ".path"
			d.AddFault(field, d.NodeOf(field, root), diag.Quote(file),
				"the socket must not be in containers/ of stateDir, "+diag.Quote(c.StateDir))
		}
	}
}

func (d decoder) readDialect(at string, element *jsontree.Node, one *Dialect) {
	ok := d.ReadObject(at, element,
		schema.Key("match", d.Section(
			schema.Key("network", d.Text(&one.Match.Network, pattern)),
			schema.Key("resource", d.Text(&one.Match.Resource, pattern)),
			schema.Key("driver", d.Text(&one.Match.Driver, pattern)),
		)),
		schema.Key("use", schema.Enum(d.Decoder, &one.Use, dialectNames()...)),
		schema.Key("creator", schema.Enum(d.Decoder, &one.Creator, SideHost, SideApplication)),
		schema.Key("path", schema.Enum(d.Decoder, &one.Path, SideHost, SideContainer)),
	)
	switch {
	case !ok:
	case one.Match == DialectMatch{}:
		d.AddFault(at+".match", element, "nothing", "say what the dialect is for: network, resource or both, or driver")
	case one.Match.Driver != "" && one.Match != DialectMatch{Driver: one.Match.Driver}:
		d.AddFault(at+".match", element, "driver beside network or resource",
			"a claim's device has a driver, and no other device has: write two dialects")
	case one.Use == "" && one.Creator == "" && one.Path == "":
		d.AddFault(at, element, "nothing but a match", "say what is different: use, creator or path")
	}
	if one.Use == "" && one.Match.Driver != "" {
		one.Use = DeviceMetadata
	}
	one.Use = cmp.Or(one.Use, Specification)
}
