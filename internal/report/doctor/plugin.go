// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/vswitchdriver"
	"github.com/jackfield/jackfield/internal/report/status"
)

// checkPlugin reports what the daemon answered.
func (d *doctor) checkPlugin() {
	const orphans = "\nwithout the plugin, doctor cannot find leftovers of deleted pods"
	const unregistered = "jackfield-nri (process %d) runs and is not registered with a runtime: new containers start without devices and sockets" + orphans
	node := d.node
	switch {
	case errdefs.IsPermissionDenied(d.nodeErr), d.nodeErr != nil && os.Geteuid() != 0 && !errors.Is(d.nodeErr, unix.ENOENT) && !errors.Is(d.nodeErr, unix.ECONNREFUSED):
		d.report("plugin", Unknown, runAsRoot, "%v%s", d.nodeErr, orphans)
		return
	case d.nodeErr != nil && d.isPodmanOnly():
		d.report("plugin", Note, "run jackfield-nri beside Podman to keep sockets over a restart of their vswitch", "jackfield-nri is not running, and Podman does not need it%s", orphans)
		return
	case d.nodeErr != nil:
		d.report("plugin", Error, "start it: systemctl start jackfield-nri, or see its pod's log; where its configuration has another stateDir, give doctor the same --config",
			"%v%s", d.nodeErr, orphans)
		return
	case node == nil: // no answer in time, which is reported
		return
	case !node.Registered && d.nriFault: // one cause, one error
		d.report("plugin", Note, "it registers by itself when the runtime listens (nri, above)", unregistered, node.PID)
	case !node.Registered:
		d.report("plugin", Error, "see its log; is its --nri-socket the socket of the runtime (nri, above)?", unregistered, node.PID)
	case node.Runtime.Limitation() != "":
		d.report("plugin", Error, node.Runtime.FindRemedy(), "jackfield-nri %s is registered with %s %s: %s",
			node.Version, node.Runtime.Name, node.Runtime.Version, node.Runtime.Limitation())
		return
	case node.Runtime == nil:
		d.report("plugin", Unknown, "use the doctor of jackfield-nri's own version", "jackfield-nri %s is registered, and does not say with which runtime", node.Version)
	default:
		d.reportOK("plugin", "jackfield-nri %s is registered with %s %s", node.Version, node.Runtime.Name, node.Runtime.Version)
	}
	if node.Registered && node.Runtime != nil {
		d.checkNRIVersion(node.Runtime)
	}
}

// checkNRIVersion reports what the runtime's version of NRI lacks.
func (d *doctor) checkNRIVersion(r *status.Runtime) {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(r.NRI, "v"), "%d.%d.%d", &major, &minor, &patch); n < 2 {
		d.report("version", Warning, "", "the NRI version of %s %s is not known: what needs a newer field than NRI 0.2 has is refused", r.Name, r.Version)
		d.report("required", Note, "runtimes of NRI 0.10 and later can require plugins: see the runtime's documentation", "not known here: the NRI version of %s %s", r.Name, r.Version)
		return
	}
	withoutFailure := ": one that is created while the plugin ends starts without its devices"
	if minor >= 10 {
		withoutFailure = "; jackfield-nri is a validator instead, which fails it as well"
	}
	var missing []string
	for _, f := range []struct {
		minor, patch int
		what         string
	}{
		{10, 0, "CDI device nodes with permissions other than the runtime's default (0.10), and a validator of what other plugins inject"},
		{11, 0, "CDI net devices and intelRdt (0.11)"},
		{12, 4, "failing a container when the plugin does not answer (0.12.4)" + withoutFailure},
	} {
		if major == 0 && (minor < f.minor || minor == f.minor && patch < f.patch) {
			missing = append(missing, f.what)
		}
	}
	if len(missing) == 0 {
		d.reportOK("version", "NRI %s has every field", r.NRI)
	} else {
		d.report("version", Note, "a runtime of a newer version has them", "NRI %s of %s %s has no field for:\n- %s", r.NRI, r.Name, r.Version, strings.Join(missing, "\n- "))
	}
	d.checkContainerUser(r, major > 0 || minor >= 11)
	d.checkRequired(r, major > 0 || minor >= 10)
}

// checkContainerUser reports whether the runtime says which user a container runs as. CRI-O of NRI
// 0.11 has the field, and leaves it empty.
func (d *doctor) checkContainerUser(r *status.Runtime, hasField bool) {
	var major, minor int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(r.Version, "v"), "%d.%d", &major, &minor); r.Name == "cri-o" && n == 2 && major == 1 && minor < 36 {
		hasField = false
	}
	if hasField {
		return
	}
	const without = "%s %s does not report which user a container runs as (containerd 2.2.1 and CRI-O 1.36 do)"
	if d.cfg.Sockets.User != "" {
		d.report("version", Note, "", without+": sockets.user %q stands for it in every container, and nodes of CDI devices are root's", r.Name, r.Version, d.cfg.Sockets.User)
		return
	}
	d.report("version", Warning, "set sockets.user in Jackfield's configuration to the \"UID:GID\" of containers that do not run as root",
		without+": one that does not run as root cannot open sockets of root's, and nodes of CDI devices are root's", r.Name, r.Version)
}

// maxMissedNamed bounds the missed containers that one finding names.
const maxMissedNamed = 10

// checkMissed reports the containers that were created while the plugin was not connected, and lack
// what they requested.
func (d *doctor) checkMissed() {
	if d.node == nil || !d.node.Registered {
		return
	}
	missed := d.node.Missed
	if len(missed) == 0 {
		d.reportOK("missed", "no running container lacks what it requested because it was created without jackfield-nri")
		return
	}
	var names []string
	for i := range missed[:min(len(missed), maxMissedNamed)] {
		names = append(names, "- "+missed[i].Title())
	}
	if more := len(missed) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("- and %d more", more))
	}
	d.report("missed", Warning, "delete these pods, so that their containers are created again (`jackfield status` says what they would get), or set missed: evict; to keep it from happening, let the runtime require the plugin (the check required)",
		"%s of this node lack what they requested: they were created while jackfield-nri was not connected\n%s", diag.Count(len(missed), "running container"), strings.Join(names, "\n"))
}

// checkVswitches reports the vswitches that do not answer or lack ports of living pods.
func (d *doctor) checkVswitches() {
	if len(d.cfg.Vswitches) == 0 {
		return
	}
	for _, v := range d.cfg.Vswitches {
		if err := vswitchdriver.CheckProgram(d.Host, v); err != nil {
			d.report("vswitches", Warning, "install grcli, or correct vswitches."+v.Name+".grcli",
				"the program %s of vswitch %s cannot run: %v", v.Grcli, diag.Quote(v.Name), err)
		}
	}
	if d.isPodmanOnly() {
		d.report("vswitches", Note, "", "not checked: jackfield-nri checks the vswitches, and is not running")
		return
	}
	if d.node == nil || !d.node.Registered {
		d.report("vswitches", Unknown, "", "jackfield-nri checks the vswitches, and is not registered (plugin, above)")
		return
	}
	for _, v := range d.node.Vswitches {
		title := fmt.Sprintf("vswitch %s (%s at %s)", diag.Quote(v.Name), v.Type, v.Endpoint)
		switch {
		case !v.Checked:
			d.report("vswitches", Unknown, "run doctor again in a few seconds", "%s is not checked yet", title)
		case !v.Answering:
			d.report("vswitches", Error, v.FindRemedy(), "%s is unreachable: %s", title, v.Error)
		case v.Missing > 0:
			d.report("vswitches", Error, v.FindRemedy(), "%s lacks %s of running pods: %s", title, diag.Count(v.Missing, "port"), v.Error)
		case v.Error != "":
			d.report("vswitches", Warning, "see the log of jackfield-nri", "%s answers and has %s of running pods: %s", title, diag.Count(v.Ports, "port"), v.Error)
		default:
			d.reportOK("vswitches", "%s answers and has %s of running pods", title, diag.Count(v.Ports, "port"))
		}
	}
}
