// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/jsontree"
	"github.com/jackfield/jackfield/internal/mountopt"
)

// decodeEdits decodes container edits and reports whether they are empty.
func (c *checker) decodeEdits(n *jsontree.Node) (e specs.ContainerEdits, empty bool) {
	if !isPresent(n) {
		return e, true
	}
	c.pushField("containerEdits")
	defer c.popField()
	var f [7]*jsontree.Node
	if !c.members(n, editFields, f[:]) {
		return e, false
	}
	empty = !slices.ContainsFunc(f[:], func(n *jsontree.Node) bool { return countEntries(n) > 0 })
	e.Env = decodeList(c, f[0], "env", c.decodeEnv)
	e.DeviceNodes = decodeList(c, f[1], "deviceNodes", c.decodeDeviceNode)
	if countEntries(f[2]) > 0 {
		c.requireVersion(v110, f[2], "netDevices", "")
		hostNames, names := map[string]bool{}, map[string]bool{}
		e.NetDevices = decodeList(c, f[2], "netDevices", func(n *jsontree.Node) *specs.LinuxNetDevice {
			return c.decodeNetDevice(n, hostNames, names)
		})
	}
	e.Hooks = decodeList(c, f[3], "hooks", c.decodeHook)
	e.Mounts = decodeList(c, f[4], "mounts", c.decodeMount)
	if isPresent(f[5]) {
		c.requireVersion(v070, f[5], "intelRdt", "")
		e.IntelRdt = c.decodeIntelRdt(f[5])
	}
	e.AdditionalGIDs = decodeList(c, f[6], "additionalGids", func(n *jsontree.Node) uint32 {
		return uint32(c.decodeInteger(n, "", 0, math.MaxUint32, ruleGroupID))
	})
	if countEntries(f[6]) > 0 {
		c.requireVersion(v070, f[6], "additionalGids", "")
	}
	return e, empty
}

const (
	ruleUserID       = "must be a user ID, 0 to 4294967295"
	ruleGroupID      = "must be a group ID, 0 to 4294967295"
	ruleDeviceNumber = "must be a device number, 0 or more"
	ruleFileMode     = "must be permission bits, at most 4095 (octal 7777); JSON takes them in decimal, 438 for 0666"
)

func (c *checker) decodeEnv(n *jsontree.Node) string {
	s := c.decodeString(n, "")
	if strings.IndexByte(s, '=') <= 0 && n.Kind < jsontree.Array && strings.IndexByte(n.Text, 0) < 0 {
		c.reject(n, "", "must be NAME=VALUE")
	}
	return s
}

// decodeAbsolute decodes an absolute path that the object in must have.
func (c *checker) decodeAbsolute(in, n *jsontree.Node, key string) string {
	s := c.decodeRequired(in, n, key)
	if s != "" && !path.IsAbs(s) {
		c.reject(n, key, "must be an absolute path")
	}
	return s
}

func (c *checker) decodeDeviceNode(n *jsontree.Node) *specs.DeviceNode {
	var f [9]*jsontree.Node
	d := &specs.DeviceNode{}
	if !c.members(n, nodeFields, f[:]) {
		return d
	}
	d.Path = c.decodeAbsolute(n, f[0], "path")
	ref := hostRef{what: refNode, path: d.Path, node: d}
	at, key := f[0], "path"
	if d.HostPath = c.decodeString(f[1], "hostPath"); d.HostPath != "" {
		if !path.IsAbs(d.HostPath) {
			c.reject(f[1], "hostPath", "must be an absolute path")
		}
		c.requireVersionInLastDevice(v050, f[1], "hostPath")
		ref.path, at, key = d.HostPath, f[1], "hostPath"
	}
	if d.Type = c.decodeString(f[2], "type"); d.Type != "" && (len(d.Type) != 1 || !strings.Contains("bcup", d.Type)) {
		c.reject(f[2], "type", "must be b, c, u or p")
	}
	if isPresent(f[3]) {
		d.Major = c.decodeInteger(f[3], "major", 0, math.MaxInt64, ruleDeviceNumber)
	}
	if isPresent(f[4]) {
		d.Minor = c.decodeInteger(f[4], "minor", 0, math.MaxInt64, ruleDeviceNumber)
	}
	if isPresent(f[5]) {
		mode := os.FileMode(c.decodeInteger(f[5], "fileMode", 0, 0o7777, ruleFileMode))
		if mode > 0o777 {
			c.addWarning(f[5], "fileMode", fmt.Sprintf("is octal %04o, with bits that mean nothing on a device node; JSON takes decimal numbers: 438 is octal 0666, 432 is 0660", uint32(mode)))
		}
		d.FileMode = &mode
	}
	if d.Permissions = c.decodeString(f[6], "permissions"); d.Permissions != "none" && strings.Trim(d.Permissions, "rwm") != "" {
		c.reject(f[6], "permissions", `must be made of r, w and m, or be "none"`)
	}
	d.UID = c.decodeID(f[7], "uid", ruleUserID)
	d.GID = c.decodeID(f[8], "gid", ruleGroupID)
	c.addRef(ref, at, key)
	return d
}

func (c *checker) decodeID(n *jsontree.Node, key, rule string) *uint32 {
	if !isPresent(n) {
		return nil
	}
	id := uint32(c.decodeInteger(n, key, 0, math.MaxUint32, rule))
	return &id
}

// decodeNetDevice decodes a network device; hostNames and names are those of the devices
// before it in the same edits.
func (c *checker) decodeNetDevice(n *jsontree.Node, hostNames, names map[string]bool) *specs.LinuxNetDevice {
	var f [2]*jsontree.Node
	d := &specs.LinuxNetDevice{}
	if !c.members(n, netFields, f[:]) {
		return d
	}
	d.HostInterfaceName = c.decodeRequired(n, f[0], "hostInterfaceName")
	d.Name = c.decodeRequired(n, f[1], "name")
	if d.HostInterfaceName != "" && hostNames[d.HostInterfaceName] {
		c.reject(f[0], "hostInterfaceName", "another network device of these edits is the same interface")
	}
	if d.Name != "" && names[d.Name] {
		c.reject(f[1], "name", "another network device of these edits has this name")
	}
	hostNames[d.HostInterfaceName], names[d.Name] = true, true
	c.addRef(hostRef{what: refInterface, path: d.HostInterfaceName}, f[0], "hostInterfaceName")
	c.addRef(hostRef{what: refInterfaceName, path: d.Name}, f[1], "name")
	return d
}

func (c *checker) decodeHook(n *jsontree.Node) *specs.Hook {
	var f [5]*jsontree.Node
	h := &specs.Hook{}
	if !c.members(n, hookFields, f[:]) {
		return h
	}
	h.HookName = c.decodeRequired(n, f[0], "hookName")
	if h.HookName != "" && !slices.Contains(hookNames, h.HookName) {
		c.reject(f[0], "hookName", "must be one of "+strings.Join(hookNames, ", "))
	}
	h.Path = c.decodeAbsolute(n, f[1], "path")
	c.addRef(hostRef{what: refHook, path: h.Path}, f[1], "path")
	h.Args = c.decodeStrings(f[2], "args")
	h.Env = decodeList(c, f[3], "env", c.decodeEnv)
	if isPresent(f[4]) {
		seconds := int(c.decodeInteger(f[4], "timeout", 1, math.MaxInt32, "must be a number of seconds greater than 0, at most 2147483647"))
		h.Timeout = &seconds
	}
	return h
}

func (c *checker) decodeMount(n *jsontree.Node) *specs.Mount {
	var f [4]*jsontree.Node
	m := &specs.Mount{}
	if !c.members(n, mountFields, f[:]) {
		return m
	}
	m.Options = c.decodeStrings(f[2], "options")
	bind := mountopt.Parse(m.Options).Bind
	if m.Type = c.decodeString(f[3], "type"); m.Type != "" {
		c.requireVersionInLastDevice(v040, f[3], "type")
	}
	// The source of a mount that is no bind mount need not be a path: "tmpfs".
	if m.Type != "" && m.Type != "bind" && m.Type != "rbind" && m.Type != "none" && !bind {
		m.HostPath = c.decodeRequired(n, f[0], "hostPath")
	} else {
		m.HostPath = c.decodeAbsolute(n, f[0], "hostPath")
		c.addRef(hostRef{what: refMount, path: m.HostPath}, f[0], "hostPath")
		if c.withRefs && !bind {
			c.addWarning(n, "options", `has neither "bind" nor "rbind": runc then fails to make the bind mount`)
		}
	}
	m.ContainerPath = c.decodeAbsolute(n, f[1], "containerPath")
	return m
}

func (c *checker) decodeIntelRdt(n *jsontree.Node) *specs.IntelRdt {
	c.pushField("intelRdt")
	defer c.popField()
	var f [5]*jsontree.Node
	r := &specs.IntelRdt{}
	if !c.members(n, rdtFields, f[:]) {
		return r
	}
	r.ClosID = c.decodeString(f[0], "closID")
	switch {
	case r.ClosID == "/": // the root class
	case len(r.ClosID) >= 4096, r.ClosID == ".", r.ClosID == "..", strings.ContainsAny(r.ClosID, "/\n"):
		c.reject(f[0], "closID", `must be a file name of fewer than 4096 bytes, or "/"`)
	}
	if r.EnableMonitoring = c.decodeBool(f[4], "enableMonitoring"); r.EnableMonitoring {
		c.requireVersion(v110, f[4], "enableMonitoring", "")
	}
	r.L3CacheSchema = c.decodeString(f[1], "l3CacheSchema")
	r.MemBwSchema = c.decodeString(f[2], "memBwSchema")
	if isPresent(f[3]) {
		c.requireVersion(v110, f[3], "schemata", "")
		// An empty list counts as present, unlike an absent one.
		r.Schemata = append([]string{}, c.decodeStrings(f[3], "schemata")...)
	}
	return r
}
