// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// checkRuntimes checks what the configuration of containerd and CRI-O says of NRI, and the NRI
// socket.
func (d *doctor) checkRuntimes() {
	for _, exists := range []func(d *doctor) bool{(*doctor).checkContainerd, (*doctor).checkCRIO} {
		// An unresponsive configuration exists, too.
		if !d.runCheck("runtime", fewFilesTimeout, func(d *doctor) { d.runtimeFound = exists(d) || d.runtimeFound }) {
			d.runtimeFound = true
		}
	}
	d.NRISocket = cmp.Or(d.NRISocket, runtimeconfig.NRISocket)
	d.pluginDir = cmp.Or(d.pluginDir, "/opt/nri/plugins")
	d.hasNRISocket = true // an unresponsive directory has one, as far as is known
	d.runCheck("nri", fewFilesTimeout, func(d *doctor) {
		_, err := d.configFiles().At(d.NRISocket).Lstat(d.NRISocket)
		d.hasNRISocket = !errdefs.IsNotFound(err)
		d.hasPodman = slices.ContainsFunc([]string{"/usr/bin/podman", "/usr/local/bin/podman"}, func(file string) bool {
			_, err := d.configFiles().At(file).Stat(file)
			return err == nil
		})
	})
	if d.isPodmanOnly() {
		d.report("runtime", Note, "where containerd or CRI-O is here, too, name its file with --containerd-config or --crio-config",
			"there is Podman here, and neither containerd nor CRI-O: containers get devices and sockets by jackfield-hook (podman, below), without NRI")
		return
	}
	if !d.runtimeFound {
		d.report("runtime", Note, "name the file with --containerd-config or --crio-config; in a pod that does not mount it, run doctor on the node",
			"there is no configuration of containerd (%s) or CRI-O (%s) here: only the NRI socket shows whether NRI is on", d.ContainerdFile, d.CRIOFile)
	}
	d.runCheck("nri", fewFilesTimeout, func(d *doctor) {
		d.checkNRISocket()
		d.nriFault = d.nriFault || slices.ContainsFunc(d.findings, func(f Finding) bool { return f.Severity == Error })
	})
}

// setNRIPaths keeps where the runtime's configuration has its NRI socket and plugins.
func (d *doctor) setNRIPaths(socket, plugins runtimeconfig.Setting) {
	d.NRISocket = cmp.Or(d.NRISocket, socket.Value)
	d.pluginDir = cmp.Or(plugins.Value, d.pluginDir)
}

// checkContainerd checks containerd's configuration, and reports whether there is one.
func (d *doctor) checkContainerd() bool {
	if runtimeconfig.LacksNRI(d.ContainerdVersion) {
		d.lacksNRI = true
		d.report("runtime", Error, runtimeconfig.UpgradeContainerd, "containerd %s has no NRI: jackfield-nri cannot serve its containers", d.ContainerdVersion)
		return true
	}
	conf, err := runtimeconfig.ReadContainerd(d.configFiles(), d.ContainerdFile)
	switch {
	case errdefs.IsNotFound(err):
		return false
	case errdefs.IsResourceExhausted(err):
		d.report("runtime", Unknown, "import fewer files", "containerd's configuration is not checked: %v", err)
		return true
	case err != nil:
		d.reportError("runtime", "correct it: containerd does not start with it", err)
		return true
	}
	for _, m := range conf.Missing {
		d.report("runtime", Error, "create it, or remove it from imports: containerd does not start without it", "there is no %s", m)
	}
	d.checkContainerdNRI(conf)
	d.setNRIPaths(conf.Get("plugins", runtimeconfig.NRIPlugin, "socket_path"), conf.Get("plugins", runtimeconfig.NRIPlugin, "plugin_path"))
	d.settings["containerd"] = conf.Settings
	if cdi, on := conf.CDI(); on {
		d.runtimeCDI["containerd"] = cdi
	}
	for _, cri := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"} {
		if s := conf.Get("plugins", cri, "enable_cdi"); s.Value == "true" {
			d.report("injectors", Note, "", "containerd injects CDI devices, too, for the CRI's field and container annotations (enable_cdi in %s): no policy rule is asked for these, and what it injected is not injected twice", s.File)
			break
		}
	}
	return true
}

// checkContainerdNRI reports whether NRI is on, and which file has it so.
func (d *doctor) checkContainerdNRI(conf *runtimeconfig.Containerd) {
	const table = "[plugins.\"" + runtimeconfig.NRIPlugin + "\"]"
	imported := func(file string) string {
		if file == d.ContainerdFile {
			return file
		}
		return fmt.Sprintf("%s, which %s imports,", file, d.ContainerdFile)
	}
	for _, s := range conf.DisabledBy {
		d.report("runtime", Error, "take "+runtimeconfig.NRIPlugin+" out of disabled_plugins at "+s.Place()+" and restart containerd", "%s turns NRI off", imported(s.File))
	}
	disable, connections, shadowedBy := conf.NRIDisable(), conf.NRIConnections(), conf.ShadowedBy()
	switch {
	case disable.IsNot("false"):
		d.report("runtime", Error, "set disable = false in "+table+" at "+disable.Place()+" and restart containerd", "%s turns NRI off", imported(disable.File))
	case len(conf.DisabledBy) > 0:
	case connections.IsNot("false"):
		d.report("runtime", Error, "set disable_connections = false in "+table+" at "+connections.Place()+" and restart containerd, or install the plugin as /opt/nri/plugins/50-jackfield",
			"%s lets no plugin connect from outside", imported(connections.File))
	case shadowedBy.IsSet():
		d.report("runtime", Warning, "with containerd 1.7 set disable = false in "+table+" of "+shadowedBy.File+", too, and restart it",
			"%s has NRI on, but containerd 1.7, which has it off by default, takes %s whole from %s", disable.File, table, imported(shadowedBy.File))
	case !conf.NRIOn():
		d.report("runtime", Warning, "with containerd 1.7 set disable = false in "+table+" and restart it", "%s does not mention NRI, which containerd 1.7 has off by default", d.ContainerdFile)
	default:
		d.nriOn = true
		d.reportOK("runtime", "%s has NRI on", imported(cmp.Or(disable.File, d.ContainerdFile)))
	}
}

// checkCRIO checks CRI-O's configuration, and reports whether there is one.
func (d *doctor) checkCRIO() bool {
	conf := runtimeconfig.ReadCRIO(d.configFiles(), d.CRIOFile)
	for _, err := range conf.Faults {
		d.reportError("runtime", "correct the file: CRI-O does not start with it", err)
	}
	if len(conf.Files) == 0 {
		return len(conf.Faults) > 0
	}
	d.setNRIPaths(conf.Get("crio", "nri", "nri_listen"), conf.Get("crio", "nri", "nri_plugin_dir"))
	enable, blocks := conf.Get("crio", "nri", "enable_nri"), conf.NRIBlocks()
	for _, b := range blocks {
		d.report("runtime", Error, "set "+b.Key+" = "+b.Want+" in [crio.nri] at "+b.Place()+" and restart CRI-O", "%s %s", b.File, b.Effect)
	}
	switch {
	case len(blocks) > 0:
	case !enable.IsSet():
		d.report("runtime", Note, "", "CRI-O's configuration does not mention NRI: it is on by default since 1.30")
	default:
		d.nriOn = true
		d.reportOK("runtime", "%s has NRI on", enable.File)
	}
	if len(conf.Faults) == 0 {
		d.settings["cri-o"] = conf.Settings
		if cdi, on := conf.CDI(); on {
			d.runtimeCDI["CRI-O"] = cdi
		}
	}
	d.checkCRIOInjectors(conf, !enable.IsNot("true"))
	return true
}

func (d *doctor) checkNRISocket() {
	start := "turn NRI on in the runtime's configuration (`jackfield enable-nri`) and restart the runtime"
	if d.nriOn {
		start = "restart the runtime, whose configuration has NRI on, and see its log; containerd before 1.7 has no NRI"
	}
	host := d.configFiles().At(d.NRISocket)
	st, err := host.Stat(d.NRISocket)
	switch {
	case errdefs.IsNotFound(err) && d.lacksNRI && !d.nriOn:
		d.nriFault = true
		d.report("nri", Note, "", "there is no NRI socket %s (runtime, above)", d.NRISocket)
	case errdefs.IsNotFound(err):
		remedy := start
		if !d.runtimeFound {
			remedy = "install containerd 1.7 or later, or CRI-O; where its files are elsewhere, name them with --containerd-config, --crio-config or --nri-socket"
		}
		d.report("nri", Error, remedy, "there is no NRI socket %s: NRI is off, or the runtime is not running", d.NRISocket)
	case err != nil:
		d.reportError("nri", "check the directory of the socket", err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		d.report("nri", Error, "remove it and restart the runtime", "%s is a %s, not a socket", d.NRISocket, hostfs.TypeName(st.Mode))
	default:
		if st.Mode&0o022 != 0 {
			d.report("nri", Error, "chmod go-w "+d.NRISocket, "others than root can connect to the NRI socket %s (mode %04o), and so change every container", d.NRISocket, st.Mode&0o7777)
		}
		// The file stays when a runtime ends, or restarts with NRI off.
		switch bound, err := runtimeconfig.IsSocketBound(host, d.NRISocket); {
		case err != nil:
			d.reportError("nri", start, err)
		case !bound:
			d.report("nri", Error, start, "nothing listens at the NRI socket %s, an earlier process left the file: NRI is off, plugins may not connect, or the runtime is not running", d.NRISocket)
		default:
			d.reportOK("nri", "the runtime listens at %s", d.NRISocket)
		}
	}
}
