// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"path"
	"strings"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/edit/cdiedits"
)

// installedHooksDirs are where the packages and `make install` put the hook file for Podman.
var installedHooksDirs = []string{"/usr/share/jackfield/podman-hooks.d", "/usr/local/share/jackfield/podman-hooks.d"}

// checkPodman checks whether Podman runs jackfield-hook. Otherwise its containers start without devices and without an
// error.
func checkPodman(_ context.Context, n *node) (found findings) {
	conf := runtimeconfig.ReadPodman(n.configFiles())
	for _, err := range conf.Faults {
		found.addError("correct the file: Podman does not start with it", err)
	}
	file, program := findJackfieldHook(n, &found, conf.HooksDirs)
	if file != "" {
		if fault := cdiedits.CheckHook(n.Host, program); fault != nil {
			found.add(Error, "install jackfield-hook, or correct hook.path", "%s has Podman run %s, which %s", file, program,
				fault.Rule)
			return found
		}
		found.addOK("Podman runs %s by %s", program, file)
		return found
	}
	severity := Note
	if n.isPodmanOnly() {
		severity = Error
	}
	const effect = "Podman does not run jackfield-hook: its containers start without devices and sockets"
	installed, _ := findJackfieldHook(n, &found, installedHooksDirs)
	dir := path.Dir(installed)
	switch {
	case installed == "":
		found.add(severity, "install Jackfield's hook file for Podman: its package, or `make install`",
			"%s: no hook file of %s names it", effect, strings.Join(conf.HooksDirs, ", "))
	case conf.Source.IsSet():
		found.add(severity, "add "+dir+" to hooks_dir at "+conf.Source.Place(),
			"%s: hooks_dir at %s does not have %s", effect, conf.Source.Place(), dir)
	default:
		found.add(severity, "copy the containers.conf of share/doc/jackfield to "+runtimeconfig.ContainersConfDropIn,
			"%s: no file of containers.conf sets hooks_dir to read %s", effect, dir)
	}
	return found
}
