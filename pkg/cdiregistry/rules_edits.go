// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
)

// edits checks container edits and tells whether they are empty.
func (c *checker) edits(i int32) bool {
	at := c.w.begin()
	defer func() { c.w.end(at) }()
	if !c.present(i) {
		return true
	}
	c.push("containerEdits")
	defer c.pop()
	var f [7]int32
	if !c.object(i, editFields, f[:]) {
		return false
	}
	n := c.list(f[0], "env", tagEnv, c.envItem)
	n += c.list(f[1], "deviceNodes", tagDeviceNodes, c.deviceNode)
	c.nets.reset()
	c.inside.reset()
	if k := c.list(f[2], "netDevices", tagNetDevices, c.netDevice); k > 0 {
		c.need(v110, f[2], "netDevices", "")
		n += k
	}
	n += c.list(f[3], "hooks", tagHooks, c.hook)
	n += c.list(f[4], "mounts", tagMounts, c.mount)
	if c.present(f[5]) {
		c.need(v070, f[5], "intelRdt", "")
		c.intelRdt(f[5])
		n++
	}
	if k := c.list(f[6], "additionalGids", tagGIDs, c.gid); k > 0 {
		c.need(v070, f[6], "additionalGids", "")
		n += k
	}
	return n == 0
}

// list checks and writes an array that is left out of the blob when it is empty.
// It gives the number of entries, and 1 for what is not an array, so that the
// edits do not also count as empty.
func (c *checker) list(i int32, key string, tag byte, item func(int32)) int {
	if !c.present(i) {
		return 0
	}
	n := c.at(i)
	if n.kind != kindArray {
		c.bad(i, key, "must be an array")
		return 1
	}
	if n.count > 0 {
		c.w.byte(tag)
		c.w.uint(uint64(n.count))
		c.items(i, key, item)
	}
	return int(n.count)
}

// strs writes an array that always has its place in the blob.
func (c *checker) strs(i int32, key string, item func(int32)) {
	if !c.present(i) {
		c.w.uint(0)
		return
	}
	c.w.uint(uint64(c.at(i).count))
	c.items(i, key, item)
}

func (c *checker) strItem(i int32) {
	c.w.strings++
	c.w.str(c.str(i, ""))
}

func (c *checker) envItem(i int32) {
	s := c.str(i, "")
	if strings.IndexByte(s, '=') <= 0 && c.at(i).kind < kindArray && strings.IndexByte(c.text(i), 0) < 0 {
		c.bad(i, "", "must be NAME=VALUE")
	}
	c.w.strings++
	c.w.str(s)
}

func (c *checker) gid(i int32) {
	c.w.uint(uint64(c.number(i, "", 0, math.MaxUint32, "must be a group ID, 0 to 4294967295")))
}

// absolute is an absolute path that must be there.
func (c *checker) absolute(in, i int32, key string) string {
	s := c.required(in, i, key)
	if s != "" && !path.IsAbs(s) {
		c.bad(i, key, "must be an absolute path")
	}
	return s
}

func (c *checker) deviceNode(i int32) {
	var f [9]int32
	if !c.object(i, nodeFields, f[:]) {
		return
	}
	flagsAt := len(c.w.b)
	c.w.byte(0)
	var flags byte
	inside := c.absolute(i, f[0], "path")
	c.w.str(inside)
	ref := hostRef{what: refNode, path: inside, i: f[0], key: "path", numbers: [2]int64{-1, -1}}
	if s := c.str(f[1], "hostPath"); s != "" {
		if !path.IsAbs(s) {
			c.bad(f[1], "hostPath", "must be an absolute path")
		}
		c.needLax(v050, f[1], "hostPath")
		flags |= nodeHostPath
		c.w.str(s)
		ref.path, ref.i, ref.key = s, f[1], "hostPath"
	}
	if s := c.str(f[2], "type"); s != "" {
		if len(s) != 1 || !strings.Contains("bcup", s) {
			c.bad(f[2], "type", "must be b, c, u or p")
		}
		flags |= nodeType
		c.w.str(s)
		ref.nodeType = s
	}
	var mode int64
	numbers := func(k int, key string, flag byte, hi int64, rule string) {
		if c.present(f[k]) {
			flags |= flag
			v := c.number(f[k], key, 0, hi, rule)
			c.w.uint(uint64(v))
			ref.major = ref.major || k == 3 && v != 0
			if k < 5 {
				ref.numbers[k-3] = v
			}
			if k == 5 {
				mode = v
			}
		}
	}
	numbers(3, "major", nodeMajor, math.MaxInt64, "must be a device number, 0 or more")
	numbers(4, "minor", nodeMinor, math.MaxInt64, "must be a device number, 0 or more")
	numbers(5, "fileMode", nodeFileMode, 0o7777, "must be permission bits, at most 4095 (octal 7777); JSON takes them in decimal, 438 for 0666")
	if mode > 0o777 {
		c.warn(f[5], "fileMode", fmt.Sprintf("is octal %04o, with bits that mean nothing on a device node; JSON takes decimal numbers: 438 is octal 0666, 432 is 0660", mode))
	}
	if s := c.str(f[6], "permissions"); s != "" {
		if s != "none" && strings.Trim(s, "rwm") != "" {
			c.bad(f[6], "permissions", `must be made of r, w and m, or be "none"`)
		}
		flags |= nodePermissions
		c.w.str(s)
	}
	numbers(7, "uid", nodeUID, math.MaxUint32, "must be a user ID, 0 to 4294967295")
	numbers(8, "gid", nodeGID, math.MaxUint32, "must be a group ID, 0 to 4294967295")
	c.w.b[flagsAt] = flags
	c.ref(ref)
}

func (c *checker) netDevice(i int32) {
	var f [2]int32
	if !c.object(i, netFields, f[:]) {
		return
	}
	host := c.required(i, f[0], "hostInterfaceName")
	name := c.required(i, f[1], "name")
	if host != "" && !c.nets.add(host) {
		c.bad(f[0], "hostInterfaceName", "these edits take this interface already")
	}
	if name != "" && !c.inside.add(name) {
		c.bad(f[1], "name", "these edits give this name already")
	}
	c.ref(hostRef{what: refInterface, path: host, i: f[0], key: "hostInterfaceName"})
	c.ref(hostRef{what: refInterfaceName, path: name, i: f[1], key: "name"})
	c.w.str(host)
	c.w.str(name)
}

func (c *checker) hook(i int32) {
	var f [5]int32
	if !c.object(i, hookFields, f[:]) {
		return
	}
	name := c.required(i, f[0], "hookName")
	if name != "" && !slices.Contains(hookNames, name) {
		c.bad(f[0], "hookName", "must be one of "+strings.Join(hookNames, ", "))
	}
	file := c.absolute(i, f[1], "path")
	c.ref(hostRef{what: refHook, path: file, i: f[1], key: "path"})
	c.w.str(name)
	c.w.str(file)
	c.strs(f[2], "args", c.strItem)
	c.strs(f[3], "env", c.envItem)
	var timeout int64
	if c.present(f[4]) {
		timeout = c.number(f[4], "timeout", 1, math.MaxInt32, "must be a number of seconds greater than 0, at most 2147483647")
	}
	c.w.uint(uint64(timeout))
}

func (c *checker) mount(i int32) {
	var f [4]int32
	if !c.object(i, mountFields, f[:]) {
		return
	}
	kind := c.str(f[3], "type")
	if kind != "" {
		c.needLax(v040, f[3], "type")
	}
	// The source of a mount that is not a bind may be no path at all: "tmpfs".
	if kind != "" && kind != "bind" && kind != "rbind" && kind != "none" && !c.binds(f[2]) {
		c.w.str(c.required(i, f[0], "hostPath"))
	} else {
		source := c.absolute(i, f[0], "hostPath")
		c.w.str(source)
		c.ref(hostRef{what: refMount, path: source, i: f[0], key: "hostPath"})
		if c.useRefs && !c.binds(f[2]) {
			c.warn(i, "options", `has neither "bind" nor "rbind": runc then fails to make the bind mount`)
		}
	}
	c.w.str(c.absolute(i, f[1], "containerPath"))
	c.w.str(kind)
	c.strs(f[2], "options", c.strItem)
}

// binds tells whether mount options ask for a bind mount.
func (c *checker) binds(i int32) bool {
	if !c.present(i) {
		return false
	}
	for j := c.at(i).first; j != none; j = c.at(j).next {
		if t := c.text(j); t == "bind" || t == "rbind" {
			return true
		}
	}
	return false
}

func (c *checker) intelRdt(i int32) {
	c.push("intelRdt")
	defer c.pop()
	var f [5]int32
	if !c.object(i, rdtFields, f[:]) {
		return
	}
	clos := c.str(f[0], "closID")
	switch {
	case clos == "/": // the root class
	case len(clos) >= 4096, clos == ".", clos == "..", strings.ContainsAny(clos, "/\n"):
		c.bad(f[0], "closID", `must be a file name of fewer than 4096 bytes, or "/"`)
	}
	var flags byte
	if c.flag(f[4], "enableMonitoring") {
		c.need(v110, f[4], "enableMonitoring", "")
		flags |= rdtMonitoring
	}
	if c.present(f[3]) {
		c.need(v110, f[3], "schemata", "")
		flags |= rdtSchemata
	}
	c.w.byte(tagIntelRdt)
	c.w.byte(flags)
	c.w.str(clos)
	c.w.str(c.str(f[1], "l3CacheSchema"))
	c.w.str(c.str(f[2], "memBwSchema"))
	if flags&rdtSchemata != 0 {
		c.strs(f[3], "schemata", c.strItem)
	}
}

// refWhat is what a path of a spec refers to on the host.
type refWhat int

const (
	refNode refWhat = iota
	refMount
	refHook
	refInterface
	refInterfaceName // in the container; looked at as a name alone
)

// hostRef is a path, or a network interface, that must exist on the host when a
// container is created.
type hostRef struct {
	what     refWhat
	path     string
	numbers  [2]int64 // major and minor number that the spec gives a node, -1 for none
	nodeType string   // of a device node, "" when the host decides
	major    bool     // the spec gives the device number
	i        int32    // the node, and its key, until ref has placed it
	key      string
	place    Diagnostic
}

// ref keeps a reference when they are wanted.
func (c *checker) ref(r hostRef) {
	if !c.useRefs || r.path == "" || r.i == none {
		return
	}
	r.place = Diagnostic{Field: c.field(r.key), Found: fmt.Sprintf("%q", r.path)}
	r.place.Line, r.place.Column = c.d.place(c.at(r.i))
	c.refs = append(c.refs, r)
}
