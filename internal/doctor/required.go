// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/runtimeconfig"
	"github.com/jackfield/jackfield/internal/status"
)

// validatorTable is where a runtime's configuration has NRI's default validator, and under which
// keys.
type validatorTable struct {
	runtime, file, table       string
	enable, required, tolerate string
}

var (
	containerdValidator = validatorTable{"containerd", runtimeconfig.ContainerdFile, `plugins."` + runtimeconfig.NRIPlugin + `".default_validator`,
		"enable", "required_plugins", "tolerate_missing_plugins_annotation"}
	crioValidator = validatorTable{"CRI-O", runtimeconfig.CRIOFile + " and " + runtimeconfig.CRIOFile + ".d", "crio.nri.default_validator",
		"nri_enable_default_validator", "nri_validator_required_plugins", "nri_validator_tolerate_missing_plugins_annotation"}
)

// validatorSettings is what a runtime's configuration sets for NRI's default validator.
type validatorSettings struct {
	file     string
	on       bool
	required []string
	tolerate string
	ignored  []string // keys of the other runtime's table
}

// readSettings reads the keys of the table. mainFile counts as the file of a key that none sets.
func (v validatorTable) readSettings(set map[string]runtimeconfig.Setting, mainFile string) validatorSettings {
	out := validatorSettings{file: cmp.Or(set[v.enable].File, mainFile), on: set[v.enable].Value == "true", required: set[v.required].List, tolerate: set[v.tolerate].Value}
	other := containerdValidator
	if v == containerdValidator {
		other = crioValidator
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if key == other.enable || key == other.required || key == other.tolerate {
			out.ignored = append(out.ignored, key)
		}
	}
	return out
}

// checkRequired reports what happens to a container that is created while the plugin is not
// running.
func (d *doctor) checkRequired(r *status.Runtime, hasRequired bool) {
	const without = "while jackfield-nri is not running, containers start without their devices and sockets"
	table := containerdValidator
	if r.Name == "cri-o" {
		table = crioValidator
	}
	v, read := d.validators[r.Name]
	for _, key := range v.ignored {
		d.report("required", Warning, "name it as "+table.runtime+" does: "+strings.Join([]string{table.enable, table.required, table.tolerate}, ", "),
			"%s has the key %s in [%s], which %s ignores", v.file, key, table.table, table.runtime)
	}
	switch {
	case !hasRequired:
		d.report("required", Note, "a runtime of NRI 0.10 or later (containerd 2.2, CRI-O 1.34) can require plugins", "%s %s has no required plugins: %s", r.Name, r.Version, without)
	case r.Name != "containerd" && r.Name != "cri-o":
		d.report("required", Note, "see its documentation for NRI's default validator", "not known here: where %s configures required plugins", r.Name)
	case !read:
		d.report("required", Note, "on the node, check ["+table.table+"] in "+table.file+": "+table.enable+" and "+table.required,
			"not known here: %s's configuration is not available, as in a pod that does not mount it; unless it requires the plugin, %s", table.runtime, without)
	case !v.on:
		d.report("required", Note, "set "+table.enable+" = true in ["+table.table+"], restart "+table.runtime+", and annotate pods with required-plugins.noderesource.dev",
			"NRI's validator is off in %s: %s", v.file, without)
	case len(v.required) == 0:
		d.reportOK("required", "a pod that has the annotation required-plugins.noderesource.dev does not start without the plugins it names")
	case v.tolerate == "":
		d.report("required", Warning, "set "+table.tolerate+", and annotate static pods and the plugin's own DaemonSet with it",
			"no container of this node is created without the NRI plugins %q, not even the one of the plugin's own pod", v.required)
	default:
		d.reportOK("required", "only pods annotated %[2]s get containers without the NRI plugins %[1]q", v.required, v.tolerate)
	}
}
