// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/status"
)

// ask asks the daemon for its status.
func (d *doctor) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, daemonTime)
	defer cancel()
	d.node, d.nodeErr = status.Get(ctx, d.host, d.cfg.StateDir)
}

// plugin reports what the daemon answered.
func (d *doctor) plugin() {
	const orphans = "\nwithout it doctor does not know which pods live, and so what is left of those that are gone"
	node := d.node
	switch {
	case errdefs.IsPermissionDenied(d.nodeErr), d.nodeErr != nil && os.Geteuid() != 0 && !errors.Is(d.nodeErr, unix.ENOENT) && !errors.Is(d.nodeErr, unix.ECONNREFUSED):
		d.say("plugin", severityUnknown, asRoot, "%v%s", d.nodeErr, orphans)
		return
	case d.nodeErr != nil:
		d.say("plugin", severityError, "start it: systemctl start jackfield-nri, or see its pod's log; where its configuration has another stateDir, give doctor the same --config",
			"%v%s", d.nodeErr, orphans)
		return
	case node == nil: // not answered in time, which is reported
		return
	case !node.Registered && d.nriFault: // one cause, one error
		d.say("plugin", severityNote, "it registers by itself when the runtime listens (nri, above)", "jackfield-nri (process %d) runs and is not registered with a runtime: new containers come up without devices and sockets%s", node.PID, orphans)
	case !node.Registered:
		d.say("plugin", severityError, "see its log; is its --nri-socket the socket of the runtime (nri, above)?",
			"jackfield-nri (process %d) runs and is not registered with a runtime: new containers come up without devices and sockets%s", node.PID, orphans)
	case node.Runtime == nil:
		d.say("plugin", severityUnknown, "use the doctor of jackfield-nri's own version", "jackfield-nri %s is registered, and does not say with which runtime", node.Version)
	default:
		d.ok("plugin", "jackfield-nri %s is registered with %s %s", node.Version, node.Runtime.Name, node.Runtime.Version)
	}
	if node.Config.Error != "" {
		d.say("plugin", severityError, "correct the file; the earlier configuration stays in force", "jackfield-nri refuses a newer configuration: %s", node.Config.Error)
	}
	if node.Registered && node.Runtime != nil {
		d.capabilities(node.Runtime)
	}
}

// capabilities reports what the runtime's NRI does not carry.
func (d *doctor) capabilities(r *status.Runtime) {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(r.NRI, "v"), "%d.%d.%d", &major, &minor, &patch); n < 2 {
		d.say("version", severityWarning, "", "the NRI version of %s %s is not known: what needs a newer field than NRI 0.2 has is refused", r.Name, r.Version)
		d.say("required", severityNote, "runtimes of NRI 0.10 and later can require plugins: see the runtime's documentation", "not known here: the NRI version of %s %s", r.Name, r.Version)
		return
	}
	var missing []string
	for _, f := range []struct {
		minor, patch int
		what         string
	}{
		{10, 0, "CDI device nodes with permissions other than the runtime's default (0.10), and a validator of what other plugins inject"},
		{11, 0, "CDI net devices and intelRdt (0.11)"},
		{12, 4, "failing a container when the plugin does not answer (0.12.4)" + instead(minor)},
	} {
		if major == 0 && (minor < f.minor || minor == f.minor && patch < f.patch) {
			missing = append(missing, f.what)
		}
	}
	if len(missing) == 0 {
		d.ok("version", "NRI %s carries everything", r.NRI)
	} else {
		d.say("version", severityNote, "a runtime of a newer version has them", "NRI %s of %s %s has no field for:\n- %s", r.NRI, r.Name, r.Version, strings.Join(missing, "\n- "))
	}
	d.containerUser(r, major > 0 || minor >= 11)
	d.required(r, major > 0 || minor >= 10)
}

// containerUser reports whether the runtime tells which user a container runs as. CRI-O of NRI 0.11 does not.
func (d *doctor) containerUser(r *status.Runtime, field bool) {
	var major, minor int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(r.Version, "v"), "%d.%d", &major, &minor); r.Name == "cri-o" && n == 2 && major == 1 && minor < 36 {
		field = false
	}
	if field {
		return
	}
	const without = "%s %s does not tell which user a container runs as (containerd 2.2.1 and CRI-O 1.36 do)"
	if d.cfg.Sockets.User != "" {
		d.say("version", severityNote, "", without+": sockets.user %q stands for it in every container, and nodes of CDI devices are root's", r.Name, r.Version, d.cfg.Sockets.User)
		return
	}
	d.say("version", severityWarning, "set sockets.user in Jackfield's configuration to the \"UID:GID\" of containers that do not run as root",
		without+": one that does not run as root cannot open sockets of root's, and nodes of CDI devices are root's", r.Name, r.Version)
}

// validatorTable is where a runtime's configuration has NRI's default validator, and under which keys.
type validatorTable struct {
	file, table, enable, required, tolerate, restart string
}

var (
	containerdValidator = validatorTable{containerdConfig, `plugins."` + nriPlugin + `".default_validator`, "enable", "required_plugins", "tolerate_missing_plugins_annotation", "containerd"}
	crioValidator       = validatorTable{crioConfig + " and " + crioConfig + ".d", strings.Join(crioValidatorTable, "."),
		"nri_enable_default_validator", "nri_validator_required_plugins", "nri_validator_tolerate_missing_plugins_annotation", "CRI-O"}
)

// validatorValues is what a runtime's configuration sets for NRI's default validator.
type validatorValues struct {
	file     string
	on       bool
	required []string
	tolerate string
	ignored  []string // keys of the other runtime's table
}

func (v validatorTable) values(set map[string]string, file string) validatorValues {
	out := validatorValues{file: file, on: set[v.enable] == "true", required: list(set[v.required]), tolerate: set[v.tolerate]}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		other := containerdValidator
		if v == containerdValidator {
			other = crioValidator
		}
		if key == other.enable || key == other.required || key == other.tolerate {
			out.ignored = append(out.ignored, key)
		}
	}
	return out
}

// setValidator keeps what a runtime's configuration sets. The map is another one each time: a check that was given up may still write to its own.
func (d *doctor) setValidator(runtime string, v validatorValues) {
	all := map[string]validatorValues{runtime: v}
	for name, other := range d.validators {
		if name != runtime {
			all[name] = other
		}
	}
	d.validators = all
}

// required reports what becomes of a container while the plugin is not there.
func (d *doctor) required(r *status.Runtime, known bool) {
	const without = "while jackfield-nri is not running, containers come up without their devices and sockets"
	table := containerdValidator
	if r.Name == "cri-o" {
		table = crioValidator
	}
	v, read := d.validators[r.Name]
	for _, key := range v.ignored {
		d.say("required", severityWarning, "name it as "+table.restart+" does: "+strings.Join([]string{table.enable, table.required, table.tolerate}, ", "),
			"%s has the key %s in [%s], which %s ignores", v.file, key, table.table, table.restart)
	}
	switch {
	case !known:
		d.say("required", severityNote, "a runtime of NRI 0.10 or later (containerd 2.2, CRI-O 1.34) can require plugins", "%s %s knows no required plugins: %s", r.Name, r.Version, without)
	case r.Name != "containerd" && r.Name != "cri-o":
		d.say("required", severityNote, "see its documentation for NRI's default validator", "not known here: where %s configures required plugins", r.Name)
	case !read:
		d.say("required", severityNote, "on the node, look at ["+table.table+"] in "+table.file+": "+table.enable+" and "+table.required,
			"not known here: %s's configuration is not at hand, as in a pod that does not mount it; unless it requires the plugin, %s", table.restart, without)
	case !v.on:
		d.say("required", severityNote, "set "+table.enable+" = true in ["+table.table+"], restart "+table.restart+", and annotate pods with required-plugins.noderesource.dev",
			"the validator of NRI is off in %s: %s", v.file, without)
	case len(v.required) == 0:
		d.ok("required", "a pod that has the annotation required-plugins.noderesource.dev does not come up without the plugins it names")
	case v.tolerate == "":
		d.say("required", severityWarning, "set "+table.tolerate+", and annotate static pods and the plugin's own DaemonSet with it",
			"no container of this node is created without the NRI plugins %q, not even the one of the plugin's own pod", v.required)
	default:
		d.ok("required", "no container of this node is created without the NRI plugins %q, but of pods annotated %s", v.required, v.tolerate)
	}
}

// instead is what happens to a container whose plugin ends while it is created, on a
// runtime without failure policies.
func instead(minor int) string {
	if minor >= 10 {
		return "; jackfield-nri is a validator instead, which fails it as well"
	}
	return ": one that is created while the plugin ends comes up without its devices"
}
