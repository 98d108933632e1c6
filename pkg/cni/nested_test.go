// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"strings"
	"testing"
)

// A plugin that is its own IPAM plugin would run without end.
func TestPluginIsNotItsOwnIPAM(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"jackfield-cni", "jackfield-netavark"} {
		conf := confWith(`, "ipam": {"type": "` + name + `"}`)
		for _, command := range []string{"ADD", "STATUS"} {
			if a := n.run(env(command), conf); a.code != codeConfig || !strings.Contains(a.all, "ipam.type") || !strings.Contains(a.all, name) {
				t.Errorf("%s %s: code %d, %s", command, name, a.code, a.all)
			}
		}
	}
}

// A program between the plugin and itself has another name. The plugin marks the environment of its IPAM plugin.
func TestNestedRunIsRefused(t *testing.T) {
	n := newNode(t)
	if a := n.run(env("ADD", nestedMark+"=1"), confWith("")); a.code != codeConfig || !strings.Contains(a.all, "ipam") {
		t.Errorf("ADD: code %d, %s", a.code, a.all)
	}
	n.mustRun(env("ADD"), confWith(""))
	n.mustRun(env("DEL", nestedMark+"=1"), confWith(""))
	if len(n.files()) == 0 {
		t.Error("a nested DEL removed the attachment")
	}
}
