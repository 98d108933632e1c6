// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// pluginType is the type of this plugin in the configuration of a network.
const pluginType = "jackfield-cni"

// Network is the part of a network's configuration that concerns this plugin.
type Network struct {
	Plugins int           // plugins of this type; 0 for a network of other plugins
	Ports   []policy.Port // ports that ADD creates; the vswitch's default replaces an empty bridge
}

// Read reads the configuration of a network, which is one plugin or a list of plugins, and checks
// the plugins of this type like ADD. defaultName is the name of a network whose configuration has
// none: Multus adds the name of the NetworkAttachmentDefinition.
func Read(text, defaultName string) (n Network, err error) {
	root, err := ParseObject("the network configuration", []byte(text))
	if err != nil {
		return n, err
	}
	plugins, isList := root.Member("plugins"), false
	nodes := []*jsontree.Node{root}
	if plugins != nil && plugins.Kind == jsontree.Array {
		nodes, isList = plugins.Children, true
	}
	for _, node := range nodes {
		kind := node.Member("type")
		if kind == nil || kind.Text != pluginType {
			continue
		}
		n.Plugins++
		c, err := ParseHeader([]byte(blankAround(text, node)))
		if err == nil {
			err = c.readInNetwork(root, isList, defaultName)
		}
		if err != nil {
			return n, err
		}
		if p := &c.Port; p.Vswitch != "" {
			n.Ports = append(n.Ports, policy.Port{Switch: p.Vswitch, Bridge: p.Bridge, VLAN: int(p.VLAN)})
		}
	}
	return n, nil
}

// readInNetwork reads the keys of a plugin. libcni overwrites its version and name with the list's.
func (c *Config) readInNetwork(root *jsontree.Node, isList bool, defaultName string) error {
	if isList {
		c.Network, c.Version = textOf(root.Member("name")), newestOf(root)
	}
	if c.Network == "" {
		c.Network = defaultName
	}
	if err := CheckVersion(c.Version); err != nil {
		return err
	}
	return c.ReadKeys(false)
}

// newestOf returns the version in which libcni runs the plugins of a list: the newest supported
// version in cniVersions, which takes precedence, or cniVersion.
func newestOf(list *jsontree.Node) string {
	if all := list.Member("cniVersions"); all != nil {
		for _, v := range slices.Backward(Versions) {
			if slices.ContainsFunc(all.Children, func(n *jsontree.Node) bool { return n.Text == v }) {
				return v
			}
		}
	}
	return textOf(list.Member("cniVersion"))
}

// textOf returns the text of a string, and "" for any other value.
func textOf(n *jsontree.Node) string {
	if n == nil || n.Kind != jsontree.String {
		return ""
	}
	return n.Text
}

// blankAround returns the text of a node with everything before it replaced by white space, so that
// lines and columns stay.
func blankAround(text string, n *jsontree.Node) string {
	blank := strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, text[:n.Start])
	return blank + text[n.Start:n.End]
}
