// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"path"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/jsontree"
	"github.com/jackfield/jackfield/internal/mountopt"
)

var hookNames = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

func (c *checker) checkEdits(n *jsontree.Node, e *specs.ContainerEdits) {
	netDevices, gids := n.Member("netDevices"), n.Member("additionalGids")
	if countEntries(netDevices) > 0 {
		c.requireVersion("1.1.0", netDevices, "netDevices", "")
	}
	c.refuseSame(netDevices, "netDevices", "hostInterfaceName", "another network device of these edits is the same interface")
	c.refuseSame(netDevices, "netDevices", "name", "another network device of these edits has this name")
	if e.IntelRdt != nil {
		c.requireVersion("0.7.0", n.Member("intelRdt"), "intelRdt", "")
	}
	if countEntries(gids) > 0 {
		c.requireVersion("0.7.0", gids, "additionalGids", "")
	}
}

// requireAbsolute reports a field of an object that is missing or no absolute path.
func (c *checker) requireAbsolute(object *jsontree.Node, key, value string) {
	c.requireText(object, key, value)
	if value != "" && !path.IsAbs(value) {
		c.reject(object.Member(key), key, "must be an absolute path")
	}
}

func (c *checker) checkDeviceNode(n *jsontree.Node, d *specs.DeviceNode) {
	c.requireAbsolute(n, "path", d.Path)
	ref := hostRef{what: refNode, path: d.Path, node: d}
	key := "path"
	if d.HostPath != "" {
		c.requireAbsolute(n, "hostPath", d.HostPath)
		c.requireVersionInLastDevice("0.5.0", n.Member("hostPath"), "hostPath")
		ref.path, key = d.HostPath, "hostPath"
	}
	if d.Type != "" && (len(d.Type) != 1 || !strings.Contains("bcup", d.Type)) {
		c.reject(n.Member("type"), "type", "must be b, c, u or p")
	}
	if d.FileMode != nil && *d.FileMode > 0o777 {
		c.addWarning(n.Member("fileMode"), "fileMode", fmt.Sprintf("is octal %04o, with bits that mean nothing on a device node; JSON takes decimal numbers: 438 is octal 0666, 432 is 0660", uint32(*d.FileMode)))
	}
	if d.Permissions != "none" && strings.Trim(d.Permissions, "rwm") != "" {
		c.reject(n.Member("permissions"), "permissions", `must be made of r, w and m, or be "none"`)
	}
	c.addRef(ref, n.Member(key), key)
}

func (c *checker) checkNetDevice(n *jsontree.Node, d *specs.LinuxNetDevice) {
	c.requireText(n, "hostInterfaceName", d.HostInterfaceName)
	c.requireText(n, "name", d.Name)
	c.addRef(hostRef{what: refInterface, path: d.HostInterfaceName}, n.Member("hostInterfaceName"), "hostInterfaceName")
	c.addRef(hostRef{what: refInterfaceName, path: d.Name}, n.Member("name"), "name")
}

func (c *checker) checkHook(n *jsontree.Node, h *specs.Hook) {
	c.requireText(n, "hookName", h.HookName)
	if h.HookName != "" && !slices.Contains(hookNames, h.HookName) {
		c.reject(n.Member("hookName"), "hookName", "must be one of "+strings.Join(hookNames, ", "))
	}
	c.requireAbsolute(n, "path", h.Path)
	c.addRef(hostRef{what: refHook, path: h.Path}, n.Member("path"), "path")
}

func (c *checker) checkMount(n *jsontree.Node, m *specs.Mount) {
	if m.Type != "" {
		c.requireVersionInLastDevice("0.4.0", n.Member("type"), "type")
	}
	bind := mountopt.Parse(m.Options).Bind
	// The source of a mount that is no bind mount need not be a path: "tmpfs".
	if bind || slices.Contains([]string{"", "bind", "rbind", "none"}, m.Type) {
		c.requireAbsolute(n, "hostPath", m.HostPath)
		c.addRef(hostRef{what: refMount, path: m.HostPath}, n.Member("hostPath"), "hostPath")
		if c.withRefs && !bind {
			c.addWarning(n, "options", `has neither "bind" nor "rbind": runc then fails to make the bind mount`)
		}
	} else {
		c.requireText(n, "hostPath", m.HostPath)
	}
	c.requireAbsolute(n, "containerPath", m.ContainerPath)
}

func (c *checker) checkIntelRdt(n *jsontree.Node, r *specs.IntelRdt) {
	switch {
	case r.ClosID == "/": // the root class
	case len(r.ClosID) >= 4096, r.ClosID == ".", r.ClosID == "..", strings.ContainsAny(r.ClosID, "/\n"):
		c.reject(n.Member("closID"), "closID", `must be a file name of fewer than 4096 bytes, or "/"`)
	}
	if r.EnableMonitoring {
		c.requireVersion("1.1.0", n.Member("enableMonitoring"), "enableMonitoring", "")
	}
	if r.Schemata != nil { // also if the list is empty
		c.requireVersion("1.1.0", n.Member("schemata"), "schemata", "")
	}
}
