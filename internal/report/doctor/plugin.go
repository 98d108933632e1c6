// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/vswitchdriver"
	"github.com/jackfield/jackfield/internal/report/status"
)

// daemonTimeout bounds the request to the daemon.
const daemonTimeout = 5 * time.Second

// queryDaemon requests the status of jackfield-nri.
func queryDaemon(ctx context.Context, n *node) findings {
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
	defer cancel()
	n.daemon, n.daemonErr = status.Find(ctx, n.Host, config.StateDirs(n.Host, n.ConfigFile))
	return nil
}

// checkPlugin checks whether jackfield-nri runs and is registered with a runtime.
func checkPlugin(_ context.Context, n *node) (found findings) {
	const orphans = "\nwithout the plugin, doctor cannot find leftovers of deleted pods"
	const unregistered = "jackfield-nri (process %d) runs and is not registered with a runtime: " +
		"new containers start without devices and sockets" + orphans
	err, daemon := n.daemonErr, n.daemon
	noSocket := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
	// The first obstacle to an injection is the finding.
	switch {
	case err != nil && (lacksPermission(err) || os.Geteuid() != 0 && !noSocket):
		found.add(Unknown, runAsRoot, "%v%s", err, orphans)
	case err != nil && n.isHookOnly():
		user := "CRI-O"
		if n.isPodmanOnly() {
			user = "Podman"
		}
		found.add(Note, "run jackfield-nri beside "+user+" to keep sockets over a restart of their vswitch",
			"jackfield-nri is not running, and %s does not need it%s", user, orphans)
	case err != nil:
		start := "start it: systemctl start jackfield-nri, or see its pod's log"
		if file := n.installedPlugin(); file != "" {
			start = "restart the runtime, which starts " + file
		}
		found.add(Error, start+"; where its configuration has another stateDir, give doctor the same --config",
			"%v%s", err, orphans)
	case daemon == nil: // the request timed out, which is reported
	case !daemon.Registered && n.isNRIFault():
		found.add(Note, "it registers by itself when the runtime listens (nri, above)", unregistered, daemon.PID)
	case !daemon.Registered:
		found.add(Error, "see its log; is its --nri-socket the socket of the runtime (nri, above)?", unregistered, daemon.PID)
	case daemon.Runtime.Limitation() != "":
		found.add(Error, daemon.Runtime.FindRemedy(), "jackfield-nri %s is registered with %s %s: %s",
			daemon.Version, daemon.Runtime.Name, daemon.Runtime.Version, daemon.Runtime.Limitation())
	case daemon.Runtime == nil:
		found.add(Unknown, "use the doctor of jackfield-nri's own version",
			"jackfield-nri %s is registered, and does not say with which runtime", daemon.Version)
	default:
		found.addOK("jackfield-nri %s is registered with %s %s", daemon.Version, daemon.Runtime.Name, daemon.Runtime.Version)
	}
	return found
}

// installedPlugin returns the file of jackfield-nri that the runtime starts by itself, or "".
func (n *node) installedPlugin() string {
	dir := n.nriPluginDir()
	names, _ := n.Host.ReadDir(dir, maxPlugins) // checkInjectors reports the error
	for _, name := range names {
		if strings.Contains(name, "jackfield") {
			return path.Join(dir, name)
		}
	}
	return ""
}

// nriVersion is the version of NRI in a runtime.
type nriVersion struct{ major, minor, patch int }

// nriVersionOf returns the NRI version of a runtime, if it is known.
func nriVersionOf(r *status.Runtime) (v nriVersion, known bool) {
	fields, _ := fmt.Sscanf(strings.TrimPrefix(r.NRI, "v"), "%d.%d.%d", &v.major, &v.minor, &v.patch)
	return v, fields >= 2
}

// isAtLeast reports whether the version is 0.MINOR.PATCH or later.
func (v nriVersion) isAtLeast(minor, patch int) bool {
	return v.major > 0 || v.minor > minor || v.minor == minor && v.patch >= patch
}

// checkNRIVersion reports the fields of NRI that the runtime's version lacks.
func checkNRIVersion(_ context.Context, n *node) (found findings) {
	r := n.daemon.Runtime
	version, known := nriVersionOf(r)
	if !known {
		found.add(Warning, "", "the NRI version of %s %s is unknown: requests that need a newer field than NRI 0.2 has are "+
			"refused",
			r.Name, r.Version)
		return found
	}
	withoutFailure := ": one that is created while the plugin ends starts without its devices"
	if version.isAtLeast(10, 0) {
		withoutFailure = "; jackfield-nri is a validator instead, which fails it as well"
	}
	var missing []string
	for _, f := range []struct {
		minor, patch int
		feature      string
	}{
		{4, 0, "the limit of locked memory, limits.memlock of a rule (0.4)"},
		{10, 0, "CDI device nodes with permissions other than the runtime's default (0.10), and a validator of what other " +
			"plugins inject"},
		{11, 0, "CDI net devices and intelRdt (0.11)"},
		{12, 4, "failing a container when the plugin does not answer (0.12.4)" + withoutFailure},
	} {
		if !version.isAtLeast(f.minor, f.patch) {
			missing = append(missing, f.feature)
		}
	}
	if len(missing) == 0 {
		found.addOK("NRI %s has every field", r.NRI)
	} else {
		found.add(Note, "a runtime of a newer version has them",
			"NRI %s of %s %s has no field for:\n- %s", r.NRI, r.Name, r.Version, strings.Join(missing, "\n- "))
	}
	return append(found, checkContainerUser(n, version)...)
}

// checkContainerUser checks whether the runtime reports the user of a container. CRI-O of NRI 0.11 has the field, and
// leaves it empty.
func checkContainerUser(n *node, version nriVersion) (found findings) {
	r := n.daemon.Runtime
	var major, minor int
	fields, _ := fmt.Sscanf(strings.TrimPrefix(r.Version, "v"), "%d.%d", &major, &minor)
	isEmpty := r.Name == "cri-o" && fields == 2 && major == 1 && minor < 36
	if version.isAtLeast(11, 0) && !isEmpty {
		return nil
	}
	const without = "%s %s does not report which user a container runs as (containerd 2.2.1 and CRI-O 1.36 do)"
	if n.cfg.Sockets.User != "" {
		found.add(Note, "", without+": sockets.user %q stands for it in every container, and nodes of CDI devices are root's",
			r.Name, r.Version, n.cfg.Sockets.User)
		return found
	}
	found.add(Warning, "set sockets.user in Jackfield's configuration to the \"UID:GID\" of containers that do not run "+
		"as "+
		"root",
		without+": one that does not run as root cannot open sockets of root's, and nodes of CDI devices are root's",
		r.Name, r.Version)
	return found
}

// maxMissedNamed bounds the missed containers that one finding names.
const maxMissedNamed = 10

// checkMissed reports the containers without their devices, because they were created while the plugin was not
// connected.
func checkMissed(_ context.Context, n *node) (found findings) {
	missed := n.daemon.Missed
	if len(missed) == 0 {
		found.addOK("no running container lacks what it requested because it was created without jackfield-nri")
		return found
	}
	var names []string
	for i := range missed[:min(len(missed), maxMissedNamed)] {
		names = append(names, "- "+missed[i].Title())
	}
	if more := len(missed) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("- and %d more", more))
	}
	found.add(Warning, "delete these pods, so that their containers are created again "+
		"(`jackfield status` says what they would get), or set missed: evict; "+
		"to keep it from happening, let the runtime require the plugin (the check required)",
		"%s of this node lack what they requested: they were created while jackfield-nri was not connected\n%s",
		diag.Count(len(missed), "running container"), strings.Join(names, "\n"))
	return found
}

// checkDeviceNumbers reports the containers that can open another device than they were given, and those whose device
// was removed.
func checkDeviceNumbers(_ context.Context, n *node) (found findings) {
	for i := range n.daemon.ReusedNumbers {
		r := &n.daemon.ReusedNumbers[i]
		found.add(Error, "delete the pod; drain a node before its virtual functions or vDPA devices are re-created",
			"container %s can open %s through %s (device number %s), which it was given for %s",
			r.Title(), r.Now, r.Path, r.Number, r.Granted)
	}
	for i := range n.daemon.RemovedDevices {
		found.add(Warning, "delete the pod: its next container gets a device that this host has, or an error that names what is missing",
			"container %s", n.daemon.RemovedDevices[i].RemovedText())
	}
	return found
}

// checkVswitches checks the programs of vswitches, and whether the vswitches answer and have the ports of living pods.
func checkVswitches(_ context.Context, n *node) (found findings) {
	for _, v := range n.cfg.Vswitches {
		if err := vswitchdriver.CheckProgram(n.Host, v); err != nil {
			found.add(Warning, "install grcli, or correct vswitches."+v.Name+".grcli",
				"the program %s of vswitch %s cannot run: %v", v.Grcli, diag.Quote(v.Name), err)
		}
	}
	switch {
	case n.isHookOnly():
		found.add(Note, "", "not checked: jackfield-nri checks the vswitches, and is not running")
		return found
	case !n.isRegistered():
		found.add(Unknown, "", "jackfield-nri checks the vswitches, and is not registered (plugin, above)")
		return found
	}
	for _, v := range n.daemon.Vswitches {
		title := fmt.Sprintf("vswitch %s (%s at %s)", diag.Quote(v.Name), v.Type, v.Endpoint)
		ports := diag.Count(v.Ports, "port")
		// The states exclude each other in this order: a vswitch that does not answer reports no ports.
		switch {
		case !v.Checked:
			found.add(Unknown, "run doctor again in a few seconds", "%s is not checked yet", title)
		case !v.Answering:
			found.add(Error, v.FindRemedy(), "%s is unreachable: %s", title, v.Error)
		case v.Missing > 0:
			found.add(Error, v.FindRemedy(), "%s lacks %s of running pods: %s", title, diag.Count(v.Missing, "port"), v.Error)
		case v.Error != "":
			found.add(Warning, "see the log of jackfield-nri", "%s answers and has %s of running pods: %s", title, ports,
				v.Error)
		default:
			found.addOK("%s answers and has %s of running pods", title, ports)
		}
	}
	return found
}
