// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
)

// validatorTable is the table of NRI's default validator in a runtime's configuration, with its keys.
type validatorTable struct {
	runtime, file, table       string
	path                       []string // of the table
	enable, required, tolerate string
}

var (
	containerdValidator = validatorTable{
		"containerd", runtimeconfig.ContainerdFile, `plugins."` + runtimeconfig.NRIPlugin + `".default_validator`,
		[]string{"plugins", runtimeconfig.NRIPlugin, "default_validator"},
		"enable", "required_plugins", "tolerate_missing_plugins_annotation",
	}
	crioValidator = validatorTable{
		"CRI-O", runtimeconfig.CRIOFile + " and " + runtimeconfig.CRIOFile + ".d", "crio.nri.default_validator",
		[]string{"crio", "nri", "default_validator"},
		"nri_enable_default_validator", "nri_validator_required_plugins", "nri_validator_tolerate_missing_plugins_annotation",
	}
)

const withoutPlugin = "while jackfield-nri is not running, containers start without their devices and sockets"

// checkRequired checks whether containers are created while the plugin is not running. If the plugin is not registered,
// the configurations of the runtimes tell.
func checkRequired(_ context.Context, n *node) (found findings) {
	if !n.hasRuntime() {
		if n.hasContainerd() {
			found = append(found, n.checkRequiredBy("containerd")...)
		}
		if n.hasCRIO() && !n.hookServesCRIO {
			found = append(found, n.checkRequiredBy("cri-o")...)
		}
		return found
	}
	r := n.daemon.Runtime
	version, known := nriVersionOf(r)
	switch {
	case !known:
		found.add(Note, "runtimes of NRI 0.10 and later can require plugins: see the runtime's documentation",
			"not known here: the NRI version of %s %s", r.Name, r.Version)
	case !version.isAtLeast(10, 0):
		found = n.checkValidatorKeys(r.Name)
		found.add(Note, "a runtime of NRI 0.10 or later (containerd 2.2, CRI-O 1.34) can require plugins",
			"%s %s has no required plugins: %s", r.Name, r.Version, withoutPlugin)
	case r.Name != "containerd" && r.Name != "cri-o":
		found.add(Note, "see its documentation for NRI's default validator",
			"not known here: where %s configures required plugins", r.Name)
	default:
		found = n.checkRequiredBy(r.Name)
	}
	return found
}

// validatorOf returns the table of a runtime, the table of the other one, and the runtime's configuration file.
func (n *node) validatorOf(runtime string) (own, other validatorTable, file string) {
	if runtime == "cri-o" {
		return crioValidator, containerdValidator, n.CRIOFile
	}
	return containerdValidator, crioValidator, n.ContainerdFile
}

// checkValidatorKeys reports keys of the other runtime in the table.
func (n *node) checkValidatorKeys(runtime string) (found findings) {
	table, other, _ := n.validatorOf(runtime)
	settings, _ := n.settings(runtime)
	for _, key := range []string{other.enable, other.required, other.tolerate} {
		if s := settings.Get(slices.Concat(table.path, []string{key})...); s.IsSet() {
			found.add(Warning, "name it as "+table.runtime+" does: "+
				strings.Join([]string{table.enable, table.required, table.tolerate}, ", "),
				"%s has the key %s in [%s], which %s ignores", s.Place(), key, table.table, table.runtime)
		}
	}
	return found
}

// checkRequiredBy checks whether the configuration of containerd or CRI-O requires plugins.
func (n *node) checkRequiredBy(runtime string) findings {
	found := n.checkValidatorKeys(runtime)
	table, _, file := n.validatorOf(runtime)
	settings, isRead := n.settings(runtime)
	get := func(key string) runtimeconfig.Setting {
		return settings.Get(slices.Concat(table.path, []string{key})...)
	}
	enable, required, tolerate := get(table.enable), get(table.required).List, get(table.tolerate).Value
	// The first reason why plugins are not required is the finding.
	switch {
	case !isRead:
		found.add(Note, "on the node, check ["+table.table+"] in "+table.file+": "+table.enable+" and "+table.required,
			"not known here: %s's configuration is not available, as in a pod that does not mount it; "+
				"unless it requires the plugin, %s", table.runtime, withoutPlugin)
	case enable.Value != "true":
		found.add(Note, "set "+table.enable+" = true in ["+table.table+"], restart "+table.runtime+
			", and annotate pods with required-plugins.noderesource.dev", "NRI's validator is off in %s: %s",
			cmp.Or(enable.File, file), withoutPlugin)
	case len(required) == 0:
		found.addOK("a pod that has the annotation required-plugins.noderesource.dev does not start without the plugins it " +
			"names")
	case tolerate == "":
		found.add(Warning, "set "+table.tolerate+", and annotate static pods and the plugin's own DaemonSet with it",
			"no container of this node is created without the NRI plugins %q, not even the one of the plugin's own "+
				"pod", required)
	default:
		found.addOK("only pods annotated %[2]s get containers without the NRI plugins %[1]q", required, tolerate)
	}
	return found
}
