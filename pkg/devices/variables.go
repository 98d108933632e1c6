// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"slices"
	"strings"
)

// Variable is an environment variable of the container.
type Variable struct{ Name, Value string }

// SocketPrefix begins the variables of named sockets.
const SocketPrefix = "JACKFIELD_SOCKET"

// Names returns the names in the variables of a device: its interface, and the claim and request of a device without a
// network.
func (d *Device) Names() (names []string) {
	if d.Interface != "" {
		names = append(names, d.Interface)
	}
	// Several devices of a request are numbered: CLAIM/REQUEST/NUMBER.
	c := d.Jackfield.Claim
	if c != nil && c.Request != "" && strings.HasPrefix(d.Name+"/", cmp.Or(c.PodClaim, c.Name)+"/"+c.Request+"/") {
		names = append(names, d.Name)
	}
	return names
}

// Variables returns the variables of a named socket, or the variables of a device for each of the given names.
func (d *Device) Variables(names ...string) (variables []Variable) {
	if socket, ok := strings.CutPrefix(d.Name, "socket:"); ok {
		return []Variable{{VariableName(SocketPrefix, socket), d.Socket()}}
	}
	i, _ := d.decodeInfo()
	values := []Variable{{"_TYPE", i.Type}, {"_SOCKET", i.socket()}, {"_PCI", i.pciAddress()},
		{"_EAL", joinArguments(d.Jackfield.EAL)}}
	for _, name := range names {
		for _, v := range values {
			if v.Value != "" {
				variables = append(variables, Variable{VariablePrefix(name) + v.Name, v.Value})
			}
		}
	}
	return variables
}

// joinArguments joins arguments with spaces, for programs that split them. It returns "" if an argument has
// a space.
func joinArguments(args []string) string {
	if slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, " ") }) {
		return ""
	}
	return strings.Join(args, " ")
}

// VariablePrefix returns JACKFIELD_NAME, with which the variables of an interface or claim begin.
func VariablePrefix(name string) string { return VariableName("JACKFIELD", name) }

// VariableName returns the variable's name for a prefix and a name: in upper case, with "_" for characters that a
// variable's name cannot have.
func VariableName(prefix, name string) string {
	return prefix + "_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}
