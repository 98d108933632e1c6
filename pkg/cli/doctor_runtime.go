// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
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
	if !d.found {
		d.say("runtime", severityNote, "name the file with --containerd-config or --crio-config; in a pod that does not mount it, run doctor on the node",
			"there is no configuration of containerd (%s) or CRI-O (%s) here: only the NRI socket shows whether NRI is on", d.runtimeConfig, d.crioConfig)
	}
	if d.nriSocket == "" {
		d.nriSocket = "/var/run/nri/nri.sock"
	}
	if d.pluginDir == "" {
		d.pluginDir = "/opt/nri/plugins"
	}
	d.inTime("nri", doctorFew, func(d *doctor) {
		d.socket()
		d.nriFault = slices.ContainsFunc(d.out, func(f diagnosis) bool { return f.Severity == severityError })
	})
}

// socket looks at the NRI socket.
func (d *doctor) socket() {
	const start = "turn NRI on in the runtime's configuration (`jackfield enable-nri`) and restart the runtime"
	st, err := d.files().Stat(d.nriSocket)
	switch {
	case err != nil && errdefs.IsNotFound(err):
		remedy := start
		if !d.found {
			remedy = "install containerd 1.7 or later, or CRI-O; where its files are elsewhere, name them with --containerd-config, --crio-config or --nri-socket"
		}
		d.say("nri", severityError, remedy, "there is no NRI socket %s: NRI is off, or the runtime is not running", d.nriSocket)
	case errdefs.IsPermissionDenied(err):
		d.say("nri", severityUnknown, asRoot, "the NRI socket %s: %v", d.nriSocket, err)
	case err != nil:
		d.say("nri", severityError, "check the directory of the socket", "the NRI socket %s: %v", d.nriSocket, err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		d.say("nri", severityError, "remove it and restart the runtime", "%s is a %s, not a socket", d.nriSocket, hostfs.TypeName(st.Mode))
	default:
		if st.Mode&0o022 != 0 {
			d.say("nri", severityError, "chmod go-w "+d.nriSocket, "others than root can connect to the NRI socket %s (mode %04o), and so change every container", d.nriSocket, st.Mode&0o7777)
		}
		d.listener(start)
	}
}

// listener checks whether a process has the NRI socket open: the file stays when a runtime ends, or starts again with NRI off.
func (d *doctor) listener(remedy string) {
	bound, err := isSocketBound(d.files(), d.nriSocket)
	switch {
	case errdefs.IsPermissionDenied(err) || errors.Is(err, os.ErrPermission):
		d.say("nri", severityUnknown, asRoot, "whether the runtime listens at %s: %v", d.nriSocket, err)
	case err != nil:
		d.say("nri", severityError, remedy, "the NRI socket %s: %v", d.nriSocket, err)
	case !bound:
		d.say("nri", severityError, remedy, "nothing listens at the NRI socket %s, an earlier process left the file: NRI is off, plugins may not connect, or the runtime is not running", d.nriSocket)
	default:
		d.ok("nri", "the runtime listens at %s", d.nriSocket)
	}
}

// isSocketBound reports whether a process has the socket of a file open. It connects a datagram socket: where the file's stream socket is open,
// the kernel refuses the wrong type before the other process sees anything, so that a runtime does not log a plugin that failed to register.
func isSocketBound(host runtimeFiles, file string) (bool, error) {
	host.look(file)
	f, err := host.host.Open(file, unix.O_PATH)
	if err != nil {
		return false, err
	}
	defer f.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	// By descriptor: a path below the root can be longer than a socket's address.
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d", f.Fd())}); err {
	case unix.EPROTOTYPE:
		return true, nil
	case unix.ECONNREFUSED:
		return false, nil
	case nil:
		return false, fmt.Errorf("connect to %q: it is a datagram socket, want a stream socket: %w", file, errdefs.ErrInvalidArgument)
	default:
		return false, &os.PathError{Op: "connect", Path: file, Err: err}
	}
}

func (d *doctor) containerd() bool {
	s, err := containerdFiles(d.files(), d.runtimeConfig)
	switch {
	case errdefs.IsNotFound(err):
		return false
	case errdefs.IsPermissionDenied(err):
		d.say("runtime", severityUnknown, asRoot, "containerd's configuration: %v", err)
		return true
	case errdefs.IsResourceExhausted(err):
		d.say("runtime", severityUnknown, "import fewer files", "containerd's configuration is not looked at: %v", err)
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
	table := []string{"plugins", nriPlugin, "default_validator"}
	d.setValidator("containerd", containerdValidator.values(s.toml.section(table...), s.saidBy(append(table, "enable")...)))
	for _, cri := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"} {
		if s.toml.section("plugins", cri)["enable_cdi"] == "true" {
			d.say("injectors", severityNote, "", "containerd injects CDI devices, too, for the CRI's field and container annotations (enable_cdi in %s): no policy rule is asked for these, and what it injected is not injected twice",
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
	case s.refusesConnections():
		d.say("runtime", severityError, "set disable_connections = false in "+table+" at "+s.connect.place+" and restart containerd, or install the plugin as /opt/nri/plugins/50-jackfield",
			"%s lets no plugin connect from outside", imports(s.connect.file))
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

// place keeps where the runtime says its socket and plugins are.
func (d *doctor) place(socket, plugins string) {
	if d.nriSocket == "" {
		d.nriSocket = socket
	}
	if plugins != "" {
		d.pluginDir = plugins
	}
}
