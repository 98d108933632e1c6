// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/edit/cdiedits"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

var hookNames = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

// checkEdits checks the rules that concern several fields of edits. The names of network devices must be
// unique on the host and in the container, because an interface moves.
func (c *checker) checkEdits(n *jsontree.Node, e *specs.ContainerEdits) {
	netDevices, gids := n.Member("netDevices"), n.Member("additionalGids")
	if countEntries(netDevices) > 0 {
		c.requireVersion("1.1.0", netDevices, "netDevices", "")
	}
	c.refuseSame(netDevices, "netDevices", "hostInterfaceName",
		"another network device of these edits is the same interface")
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

// checkDeviceNode checks a device node. hostPath is the node on the host if its path differs from that in the
// container.
func (c *checker) checkDeviceNode(n *jsontree.Node, d *specs.DeviceNode) {
	c.requireAbsolute(n, "path", d.Path)
	key := "path"
	if d.HostPath != "" {
		c.requireAbsolute(n, "hostPath", d.HostPath)
		c.requireVersionInLastDevice("0.5.0", n.Member("hostPath"), "hostPath")
		key = "hostPath"
	}
	if d.Type != "" && (len(d.Type) != 1 || !strings.Contains("bcup", d.Type)) {
		c.reject(n.Member("type"), "type", "must be b, c, u or p")
	}
	if d.FileMode != nil {
		c.checkFileMode(n.Member("fileMode"), d)
	}
	if d.Permissions != "none" && strings.Trim(d.Permissions, "rwm") != "" {
		c.reject(n.Member("permissions"), "permissions", `must be made of r, w and m, or be "none"`)
	}
	c.addRef(n.Member(key), key, func(host hostfs.Root) *diag.Diagnostic { return cdiedits.CheckNode(host, d) })
}

// checkFileMode accepts the type bits of stat(2) that agree with the node's type, and warns of all bits that a device
// node does not have.
func (c *checker) checkFileMode(n *jsontree.Node, d *specs.DeviceNode) {
	const decimal = "; a decimal number is not octal: 438 is octal 0666, 432 is 0660"
	bits := cdiedits.ModeType(d.FileMode)
	nodeType := strings.Replace(d.Type, "u", "c", 1)
	switch mode := uint32(*d.FileMode); {
	case bits == "?":
		c.reject(n, "fileMode",
			fmt.Sprintf("is octal %04o, which is no mode of a device node: must be permission bits, at most 4095 (octal 7777)",
				mode)+decimal)
	case bits != "" && nodeType != "" && bits != nodeType:
		c.reject(n, "fileMode",
			fmt.Sprintf("is octal %04o, with the type bits of %s, but the type is %s: must be permission bits",
				mode, bits, d.Type))
	case bits != "":
		c.addWarning(n, "fileMode",
			fmt.Sprintf("is octal %04o, with the type bits of %s: only its permission bits count, octal %04o",
				mode, bits, mode&cdiedits.PermissionMask))
	case mode > 0o777:
		c.addWarning(n, "fileMode", fmt.Sprintf("is octal %04o, with bits that mean nothing on a device node", mode)+decimal)
	}
}

// checkNetDevice checks a network interface that moves from the host into the container (CDI 1.1.0).
func (c *checker) checkNetDevice(n *jsontree.Node, d *specs.LinuxNetDevice) {
	c.requireText(n, "hostInterfaceName", d.HostInterfaceName)
	c.requireText(n, "name", d.Name)
	c.addRef(n.Member("hostInterfaceName"), "hostInterfaceName",
		func(host hostfs.Root) *diag.Diagnostic { return cdiedits.CheckInterface(host, d.HostInterfaceName) })
	c.addRef(n.Member("name"), "name", func(hostfs.Root) *diag.Diagnostic { return cdiedits.CheckInterfaceName(d.Name) })
}

// checkHook checks an OCI hook. Its program runs on the host.
func (c *checker) checkHook(n *jsontree.Node, h *specs.Hook) {
	c.requireText(n, "hookName", h.HookName)
	if h.HookName != "" && !slices.Contains(hookNames, h.HookName) {
		c.reject(n.Member("hookName"), "hookName", "must be one of "+strings.Join(hookNames, ", "))
	}
	c.requireAbsolute(n, "path", h.Path)
	c.addRef(n.Member("path"), "path", func(host hostfs.Root) *diag.Diagnostic { return cdiedits.CheckHook(host, h.Path) })
}

// checkMount checks a mount. A mount without a type is a bind mount, as for upstream.
func (c *checker) checkMount(n *jsontree.Node, m *specs.Mount) {
	if m.Type != "" {
		c.requireVersionInLastDevice("0.4.0", n.Member("type"), "type")
	}
	bind := mountopt.Parse(m.Options).Bind
	// The source of a mount that is no bind mount need not be a path: "tmpfs".
	if bind || slices.Contains([]string{"", "bind", "rbind", "none"}, m.Type) {
		c.requireAbsolute(n, "hostPath", m.HostPath)
		c.addRef(n.Member("hostPath"), "hostPath",
			func(host hostfs.Root) *diag.Diagnostic { return cdiedits.CheckMountSource(host, m.HostPath) })
		if c.withRefs && !bind {
			c.addWarning(n, "options", `has neither "bind" nor "rbind": runc then fails to make the bind mount`)
		}
	} else {
		c.requireText(n, "hostPath", m.HostPath)
	}
	c.requireAbsolute(n, "containerPath", m.ContainerPath)
}

// checkIntelRdt checks a class of Intel RDT. closID becomes the name of a directory in the resctrl file system.
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
