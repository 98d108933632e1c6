// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/jackfield/jackfield/pkg/hooksd"
)

// hooks looks at the hooks.d directories, where the configuration names some.
func (d *doctor) hooks() {
	if len(d.cfg.Hooks.Dirs) == 0 {
		return
	}
	registry := hooksd.New(d.host, d.cfg.Hooks.Dirs, hooksd.Options{TrustAnyone: notInUse(d.host), Once: true})
	s := registry.Snapshot()
	if err := registry.Close(); err != nil {
		d.say("hooks", severityWarning, "", "%v", err)
	}
	said := 0
	for _, p := range s.Problems {
		severity, remedy := severityError, "mend or remove it: `jackfield validate "+p.File+"` has every finding"
		if p.Warning {
			severity, remedy = severityWarning, ""
		}
		if said++; said <= maxSaid {
			d.say("hooks", severity, remedy, "%v", p)
		}
	}
	d.more("hooks", said)
	if said == 0 {
		d.ok("hooks", "%s in %s", number(len(s.Hooks), "hook"), strings.Join(d.cfg.Hooks.Dirs, ", "))
	}
}
