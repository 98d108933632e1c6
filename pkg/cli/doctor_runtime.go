// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/status"
)

// runtime looks at the configuration of containerd and CRI-O, as far as NRI is
// concerned, and at the NRI socket.
func (d *doctor) runtime() {
	for _, of := range []func(d *doctor) bool{(*doctor).containerd, (*doctor).crio} {
		// A configuration that does not answer is one, too.
		if !d.inTime("runtime", doctorFew, func(d *doctor) { d.found = of(d) || d.found }) {
			d.found = true
		}
	}
	if d.nriSocket == "" {
		d.nriSocket = "/var/run/nri/nri.sock"
	}
	if d.pluginDir == "" {
		d.pluginDir = "/opt/nri/plugins"
	}
	d.inTime("nri", doctorFew, (*doctor).socket)
}

// socket looks at the NRI socket.
func (d *doctor) socket() {
	st, err := d.files().Stat(d.nriSocket)
	switch {
	case err != nil && errdefs.IsNotFound(err):
		remedy := "turn NRI on in the runtime's configuration and restart the runtime"
		if !d.found {
			remedy = "install containerd 1.7 or later, or CRI-O; where its files are elsewhere, say so with --containerd-config, --crio-config or --nri-socket"
		}
		d.say("nri", severityError, remedy, "there is no NRI socket %s: NRI is off, or the runtime is not running", d.nriSocket)
	case err != nil:
		d.say("nri", severityError, "", "the NRI socket %s: %v", d.nriSocket, err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		d.say("nri", severityError, "remove it and restart the runtime", "%s is a %s, not a socket", d.nriSocket, hostfs.TypeName(st.Mode))
	case st.Mode&0o022 != 0:
		d.say("nri", severityError, "chmod go-w "+d.nriSocket, "others than root can connect to the NRI socket %s (mode %04o), and so change every container", d.nriSocket, st.Mode&0o7777)
	default:
		d.ok("nri", "the runtime listens at %s", d.nriSocket)
	}
}

func (d *doctor) containerd() bool {
	s, err := containerdFiles(d.files(), d.runtimeConfig)
	switch {
	case errdefs.IsNotFound(err):
		return false
	case errdefs.IsPermissionDenied(err):
		d.say("runtime", severityWarning, "run doctor as root", "containerd's configuration: %v", err)
		return true
	case errdefs.IsResourceExhausted(err):
		d.say("runtime", severityWarning, "", "containerd's configuration is not looked at: %v", err)
		return true
	case err != nil:
		d.say("runtime", severityError, "mend it: containerd does not start with it", "%v", err)
		return true
	}
	for _, m := range s.missing {
		d.say("runtime", severityError, "make it, or take it out of imports: containerd does not start without it", "there is no %s", m)
	}
	d.containerdNRI(s)
	nri := s.toml.section("plugins", nriPlugin)
	d.place(nri["socket_path"], nri["plugin_path"])
	if d.validator = s.toml.section("plugins", nriPlugin, "default_validator"); d.validator == nil {
		d.validator = map[string]string{}
	}
	d.validatorFile = s.saidBy("plugins", nriPlugin, "default_validator", "enable")
	for _, cri := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"} {
		if s.toml.section("plugins", cri)["enable_cdi"] == "true" {
			d.say("injectors", severityNote, "", "containerd injects CDI devices, too, for the CRI's field and container annotations (enable_cdi in %s): what it injected is recognised and not injected twice",
				s.saidBy("plugins", cri, "enable_cdi"))
			break
		}
	}
	return true
}

// containerdNRI says whether NRI is on, and which file has it so.
func (d *doctor) containerdNRI(s *containerdSetup) {
	const table = "[plugins.\"" + nriPlugin + "\"]"
	imports := func(file string) string {
		if file == d.runtimeConfig {
			return file
		}
		return fmt.Sprintf("%s, which %s imports,", file, d.runtimeConfig)
	}
	for _, by := range s.off {
		d.say("runtime", severityError, "take "+nriPlugin+" out of disabled_plugins at "+by.place+" and restart containerd", "%s turns NRI off", imports(by.file))
	}
	switch {
	case s.nri != nil && s.nri.value != "false":
		d.say("runtime", severityError, "set disable = false in "+table+" at "+s.nri.place+" and restart containerd", "%s turns NRI off", imports(s.nri.file))
	case len(s.off) > 0:
	case s.toml.section("plugins", nriPlugin)["disable_connections"] == "true":
		d.say("runtime", severityError, "set disable_connections = false in "+table+" and restart containerd, or install the plugin as /opt/nri/plugins/50-jackfield",
			"%s lets no plugin connect from outside", imports(s.saidBy("plugins", nriPlugin, "disable_connections")))
	case s.replaced() != nil:
		d.say("runtime", severityWarning, "with containerd 1.7 set disable = false in "+table+" of "+s.last.file+", too, and restart it",
			"%s has NRI on, but containerd 1.7, which has it off by default, takes %s whole from %s", s.nri.file, table, imports(s.last.file))
	case !s.on():
		d.say("runtime", severityWarning, "with containerd 1.7 set disable = false in "+table+" and restart it", "%s does not mention NRI, which containerd 1.7 has off by default", d.runtimeConfig)
	case s.nri != nil:
		d.ok("runtime", "%s has NRI on", imports(s.nri.file))
	default:
		d.ok("runtime", "%s has NRI on", d.runtimeConfig)
	}
}

func (d *doctor) crio() bool {
	host := d.files()
	files := []string{d.crioConfig}
	if names, err := host.ReadDir(d.crioConfig+".d", 1000); err == nil {
		slices.Sort(names)
		for _, name := range names {
			files = append(files, path.Join(d.crioConfig+".d", name))
		}
	}
	nri, last := map[string]string{}, ""
	for _, file := range files {
		data, err := host.ReadFile(file, 1<<20)
		if err != nil {
			continue
		}
		last = file
		t, err := readTOML(string(data))
		if err != nil {
			d.say("runtime", severityError, "mend it: CRI-O does not start with it", "%s: %v", file, err)
			continue
		}
		maps.Copy(nri, t.section("crio", "nri"))
	}
	if last == "" {
		return false
	}
	d.place(nri["nri_listen"], nri["nri_plugin_dir"])
	switch nri["enable_nri"] {
	case "false":
		d.say("runtime", severityError, "set enable_nri = true in [crio.nri] and restart CRI-O", "CRI-O's configuration turns NRI off")
	case "":
		d.say("runtime", severityNote, "", "CRI-O's configuration does not mention NRI: it is on by default since 1.30")
	default:
		d.ok("runtime", "CRI-O's configuration has NRI on")
	}
	return true
}

// place keeps where the runtime says its socket and plugins are.
func (d *doctor) place(socket, plugins string) {
	if d.nriSocket == "" {
		d.nriSocket = socket
	}
	if plugins != "" {
		d.pluginDir = plugins
	}
}

// plugin asks the daemon.
func (d *doctor) plugin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, daemonTime)
	defer cancel()
	node, err := status.Get(ctx, d.host, d.cfg.StateDir)
	if err != nil {
		remedy := "start it: systemctl start jackfield-nri, or see its pod's log; where its configuration has another stateDir, give doctor the same --config"
		if errdefs.IsPermissionDenied(err) {
			remedy = "run doctor as root"
		}
		d.say("plugin", severityError, remedy, "%v", err)
		return
	}
	d.node = node
	if !node.Registered {
		d.say("plugin", severityError, "see its log; is NRI on, and is it told the right --nri-socket?", "jackfield-nri (process %d) runs and is not registered with a runtime", node.PID)
	} else {
		d.ok("plugin", "jackfield-nri %s is registered with %s %s", node.Version, node.Runtime.Name, node.Runtime.Version)
	}
	if node.Config.Error != "" {
		d.say("plugin", severityError, "mend the file; the one before stays in force", "jackfield-nri refuses a newer configuration: %s", node.Config.Error)
	}
	if node.Registered {
		d.cannotCarry(node.Runtime)
	}
}

// cannotCarry says what the runtime's NRI has no field for.
func (d *doctor) cannotCarry(r *status.Runtime) {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(r.NRI, "v"), "%d.%d.%d", &major, &minor, &patch); n < 2 {
		d.say("version", severityWarning, "", "the NRI version of %s %s is not known: what needs a newer field than NRI 0.2 has is refused", r.Name, r.Version)
		return
	}
	var missing []string
	for _, f := range []struct {
		minor, patch int
		what         string
	}{
		{10, 0, "CDI device nodes with permissions other than the runtime's default (0.10), and a validator of what other plugins inject"},
		{11, 0, "CDI net devices and intelRdt (0.11), and the user that a container runs as"},
		{12, 4, "failing a container when the plugin does not answer (0.12.4)" + instead(minor)},
	} {
		if major == 0 && (minor < f.minor || minor == f.minor && patch < f.patch) {
			missing = append(missing, f.what)
		}
	}
	if len(missing) == 0 {
		d.ok("version", "NRI %s carries everything", r.NRI)
	} else {
		d.say("version", severityNote, "a newer runtime: docs/compatibility.md", "NRI %s of %s %s has no field for:\n- %s", r.NRI, r.Name, r.Version, strings.Join(missing, "\n- "))
	}
	d.required(r, major > 0 || minor >= 10)
}

// required says what becomes of a container while the plugin is not there.
func (d *doctor) required(r *status.Runtime, known bool) {
	const without = "while jackfield-nri is not running, containers come up without their devices and sockets"
	switch names := list(d.validator["required_plugins"]); {
	case !known:
		d.say("required", severityNote, "a runtime with NRI 0.10 or later: docs/security.md", "%s %s knows no required plugins: %s", r.Name, r.Version, without)
	case d.validator == nil || r.Name != "containerd":
		// Where its configuration says so is not known here.
	case d.validator["enable"] != "true":
		d.say("required", severityNote, "set enable = true in [plugins.\"io.containerd.nri.v1.nri\".default_validator], restart containerd, and annotate the pods: docs/security.md",
			"the validator of NRI is off in %s: %s", d.validatorFile, without)
	case len(names) == 0:
		d.ok("required", "a pod that has the annotation required-plugins.noderesource.dev does not come up without the plugins it names")
	case d.validator["tolerate_missing_plugins_annotation"] == "":
		d.say("required", severityWarning, "set tolerate_missing_plugins_annotation, and annotate static pods and the plugin's own DaemonSet with it: docs/security.md",
			"no container of this node is created without the NRI plugins %q, not even the one of the plugin's own pod", names)
	default:
		d.ok("required", "no container of this node is created without the NRI plugins %q, but of pods annotated %s", names, d.validator["tolerate_missing_plugins_annotation"])
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
