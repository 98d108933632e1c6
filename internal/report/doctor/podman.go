// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"path"
	"strings"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/edit/cdiedits"
)

// installedHooksDirs are where the packages and `make install` put the hook file for Podman.
var installedHooksDirs = []string{"/usr/share/jackfield/podman-hooks.d", "/usr/local/share/jackfield/podman-hooks.d"}

// checkPodman checks whether Podman runs jackfield-hook, where Podman is installed.
func (d *doctor) checkPodman() {
	conf := runtimeconfig.ReadPodman(d.configFiles())
	for _, err := range conf.Faults {
		d.reportError("podman", "correct the file: Podman does not start with it", err)
	}
	file, program := d.findJackfieldHook("podman", conf.HooksDirs)
	if file == "" {
		d.reportNoPodmanHook(conf)
		return
	}
	if fault := cdiedits.CheckHook(d.Host, program); fault != nil {
		d.report("podman", Error, "install jackfield-hook, or correct hook.path", "%s has Podman run %s, which %s", file, program, fault.Rule)
		return
	}
	d.reportOK("podman", "Podman runs %s by %s", program, file)
}

// reportNoPodmanHook reports that Podman does not run jackfield-hook. Its containers start without devices, without a word.
func (d *doctor) reportNoPodmanHook(conf *runtimeconfig.Podman) {
	severity := Note
	if d.isPodmanOnly() {
		severity = Error
	}
	const effect = "Podman does not run jackfield-hook: its containers start without devices and sockets"
	installed, _ := d.findJackfieldHook("podman", installedHooksDirs)
	dir := path.Dir(installed)
	switch {
	case installed == "":
		d.report("podman", severity, "install Jackfield's hook file for Podman: its package, or `make install`", "%s: no hook file of %s names it", effect, strings.Join(conf.HooksDirs, ", "))
	case conf.Source.IsSet():
		d.report("podman", severity, "add "+dir+" to hooks_dir at "+conf.Source.Place(), "%s: hooks_dir at %s does not have %s", effect, conf.Source.Place(), dir)
	default:
		d.report("podman", severity, "copy the containers.conf of share/doc/jackfield to "+runtimeconfig.ContainersConfDropIn, "%s: no file of containers.conf sets hooks_dir to read %s", effect, dir)
	}
}

// isPodmanOnly reports whether Podman is here, and no runtime of NRI: then there is nothing for jackfield-nri to do.
func (d *doctor) isPodmanOnly() bool {
	return d.hasPodman && !d.runtimeFound && !d.hasNRISocket && d.node == nil && !d.IsPod
}
