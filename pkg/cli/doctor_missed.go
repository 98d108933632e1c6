// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
)

// maxMissedNamed bounds the missed containers that doctor names.
const maxMissedNamed = 10

// missed reports the containers that were created while the plugin was not connected, and
// lack what they asked for.
func (d *doctor) missed() {
	if d.node == nil || !d.node.Registered {
		return
	}
	missed := d.node.Missed
	if len(missed) == 0 {
		d.ok("missed", "no running container lacks what it asked for because it was created without jackfield-nri")
		return
	}
	var names []string
	for i := range missed[:min(len(missed), maxMissedNamed)] {
		names = append(names, "- "+containerTitle(&missed[i]))
	}
	if more := len(missed) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("- and %d more", more))
	}
	d.say("missed", severityWarning, "delete these pods, so that their containers are created again (`jackfield status` says what they would get), or set missed: evict; to keep it from happening, let the runtime require the plugin (the check required)",
		"%s of this node lack what they asked for: they were created while jackfield-nri was not connected\n%s", number(len(missed), "running container"), strings.Join(names, "\n"))
}
