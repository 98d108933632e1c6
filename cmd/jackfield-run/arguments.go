// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/jackfield/jackfield/pkg/devices"
)

// allEAL is the variable with the EAL arguments of all devices.
const allEAL = "JACKFIELD_EAL"

// reference is $(NAME), or $$(NAME) for the literal text $(NAME), like in a pod's manifest.
var reference = regexp.MustCompile(`\$?\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)`)

// expandArguments sets the variables of the devices and replaces references to variables in
// arguments. A reference to EAL arguments becomes several arguments, which can contain spaces.
func expandArguments(list []devices.Device, args []string) (expanded []string, err error) {
	lists := map[string][]string{allEAL: devices.EAL(list)}
	for i := range list {
		d := &list[i]
		names := d.Names()
		for _, v := range d.Variables(names...) {
			if err := os.Setenv(v.Name, v.Value); err != nil {
				return nil, err
			}
		}
		for _, name := range names {
			if len(d.Jackfield.EAL) > 0 {
				lists[devices.VariablePrefix(name)+"_EAL"] = d.Jackfield.EAL
			}
		}
	}
	for _, arg := range args {
		if m := reference.FindStringSubmatch(arg); m != nil && m[0] == arg && !strings.HasPrefix(arg, "$$") &&
			lists[m[1]] != nil {
			expanded = append(expanded, lists[m[1]]...)
			continue
		}
		text, err := expandText(arg)
		if err != nil {
			return nil, err
		}
		expanded = append(expanded, text)
	}
	return expanded, nil
}

// expandText replaces the references in an argument. Unknown references stay, like in a pod's
// manifest, unless they are Jackfield's own.
func expandText(arg string) (text string, err error) {
	text = reference.ReplaceAllStringFunc(arg, func(found string) string {
		if strings.HasPrefix(found, "$$") {
			return found[1:]
		}
		name := found[2 : len(found)-1]
		value, ok := os.LookupEnv(name)
		switch {
		case ok:
			return value
		case name == allEAL:
			err = fmt.Errorf("argument %q: $(%s) must be an argument of its own", arg, allEAL)
		case strings.HasPrefix(name, "JACKFIELD_"):
			err = fmt.Errorf("argument %q: the container has no variable %s", arg, name)
		}
		return found
	})
	return text, err
}
