// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// readConfig reads Jackfield's configuration. The file's owner is checked, because jackfield-nri does so.
func (d *doctor) readConfig() {
	d.configFiles().Reading(d.configFile())
	cfg, err := config.LoadOrDefault(d.Host, d.ConfigFile, config.Options{RequireOwner: true})
	if err != nil {
		d.reportConfigError(err)
		return
	}
	d.cfg = cfg
}

// reportConfigError reports why a configuration is rejected, each fault in a finding of its own.
func (d *doctor) reportConfigError(err error) {
	const remedy = "correct it; until then the configuration that was last in force stays so, also after a restart of jackfield-nri"
	if _, ok := errors.AsType[*diag.Diagnostic](err); !ok {
		d.reportError("configuration", remedy, err)
		return
	}
	for _, fault := range diag.All(d.configFile(), err) {
		d.report("configuration", Error, remedy, "%v", fault)
	}
}

// chooseConfig decides which configuration is checked, and reports whether it is valid: the one
// that the caller named, or else the one that the daemon runs with, which need not be the file of
// this host.
func (d *doctor) chooseConfig(valid bool) bool {
	d.cfgName = cmp.Or(d.cfg.File(), "the defaults (there is no "+config.DefaultPath+")")
	if d.node == nil {
		return valid
	}
	if d.node.Config.Error != "" {
		d.report("configuration", Error, "correct the file; the previous configuration stays in force", "jackfield-nri refuses a newer configuration: %s", d.node.Config.Error)
	}
	running, err := config.Parse([]byte(d.node.Config.Text), d.node.Config.File)
	if err != nil {
		return valid // a daemon of another version
	}
	if valid && running.Text() == d.cfg.Text() {
		return true
	}
	name := fmt.Sprintf("the defaults, with which jackfield-nri (process %d) runs", d.node.PID)
	if d.node.Config.File != "" {
		name = fmt.Sprintf("%s, as jackfield-nri (process %d) runs with it", d.node.Config.File, d.node.PID)
	}
	switch {
	case d.ConfigFile != "":
		if valid {
			d.report("configuration", Note, "leave out --config to check that one", "%s is not the configuration in force: that is %s", d.cfgName, name)
		}
		return valid
	case valid && d.cfg.File() != "":
		d.report("configuration", Note, "", "%s of this host is not the configuration in force, and is not checked further", d.cfgName)
	}
	d.cfg, d.cfgName = running, name
	return true
}

func (d *doctor) checkConfig() {
	if _, err := d.cfg.CompilePolicy(""); err != nil {
		d.report("configuration", Error, "correct the rule", "%v", err)
		return
	}
	switch {
	case d.cfg.File() == "" && d.node == nil:
		d.report("configuration", Note, "write rules: `man jackfield.yaml`; where jackfield-nri is in a pod, see the pod's log",
			"there is no %s, and jackfield-nri did not respond; the default configuration grants nothing", config.DefaultPath)
	case len(d.cfg.Policy.Rules) == 0:
		d.report("configuration", Warning, "write rules: `man jackfield.yaml`", "%s: there is no policy rule, so nothing is granted to anybody", d.cfgName)
	case d.cfg.Policy.Mode == policy.Audit:
		d.report("configuration", Warning, "set policy.mode to enforce once the audit file shows no refusal that you do not want", "%s: policy.mode is audit: nothing is refused", d.cfgName)
	case d.configFault:
		d.report("configuration", Note, "", "in force until that is corrected: %s: %s", d.cfgName, diag.Count(len(d.cfg.Policy.Rules), "policy rule"))
	default:
		d.reportOK("configuration", "%s: %s", d.cfgName, diag.Count(len(d.cfg.Policy.Rules), "policy rule"))
	}
}
