// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/edit/cdiedits"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// checkContainerd reads containerd's configuration, and checks whether NRI is on.
func checkContainerd(_ context.Context, n *node) (found findings) {
	if runtimeconfig.LacksNRI(n.ContainerdVersion) {
		n.lacksNRI = true
		found.add(Error, runtimeconfig.UpgradeContainerd,
			"containerd %s has no NRI: jackfield-nri cannot serve its containers", n.ContainerdVersion)
		return found
	}
	conf, err := runtimeconfig.ReadContainerd(n.configFiles(), n.ContainerdFile)
	switch {
	case errdefs.IsNotFound(err):
		n.noContainerd = true
		return nil
	case errdefs.IsResourceExhausted(err):
		found.add(Unknown, "import fewer files", "containerd's configuration is not checked: %v", err)
		return found
	case err != nil:
		found.addError("correct it: containerd does not start with it", err)
		return found
	}
	n.containerd = conf
	for _, m := range conf.Missing {
		found.add(Error, "create it, or remove it from imports: containerd does not start without it", "there is no %s", m)
	}
	return append(found, checkContainerdNRI(n, conf)...)
}

// checkContainerdNRI checks whether NRI is on, and names the file that decides it.
func checkContainerdNRI(n *node, conf *runtimeconfig.Containerd) (found findings) {
	const table = "[plugins.\"" + runtimeconfig.NRIPlugin + "\"]"
	const restart = " and restart containerd"
	imported := func(file string) string {
		if file == n.ContainerdFile {
			return file
		}
		return fmt.Sprintf("%s, which %s imports,", file, n.ContainerdFile)
	}
	for _, s := range conf.DisabledBy {
		found.add(Error, "take "+runtimeconfig.NRIPlugin+" out of disabled_plugins at "+s.Place()+restart,
			"%s turns NRI off", imported(s.File))
	}
	disable, connections, shadowedBy := conf.NRIDisable(), conf.NRIConnections(), conf.ShadowedBy()
	// The first setting that keeps plugins from connecting is the finding.
	switch {
	case disable.IsNot("false"):
		found.add(Error, "set disable = false in "+table+" at "+disable.Place()+restart, "%s turns NRI off",
			imported(disable.File))
	case len(conf.DisabledBy) > 0:
	case connections.IsNot("false"):
		found.add(Error, "set disable_connections = false in "+table+" at "+connections.Place()+restart+
			", or install the plugin as /opt/nri/plugins/50-jackfield",
			"%s lets no plugin connect from outside", imported(connections.File))
	case shadowedBy.IsSet():
		found.add(Warning, "with containerd 1.7 set disable = false in "+table+" of "+shadowedBy.File+", too, and restart it",
			"%s has NRI on, but containerd 1.7, which has it off by default, takes %s whole from %s",
			disable.File, table, imported(shadowedBy.File))
	case !conf.NRIOn():
		found.add(Warning, "with containerd 1.7 set disable = false in "+table+" and restart it",
			"%s does not mention NRI, which containerd 1.7 has off by default", n.ContainerdFile)
	default:
		n.nriOn = true
		found.addOK("%s has NRI on", imported(cmp.Or(disable.File, n.ContainerdFile)))
	}
	return found
}

// checkCRIO reads CRI-O's configuration, and checks whether NRI is on.
func checkCRIO(_ context.Context, n *node) (found findings) {
	conf := runtimeconfig.ReadCRIO(n.configFiles(), n.CRIOFile)
	for _, err := range conf.Faults {
		found.addError("correct the file: CRI-O does not start with it", err)
	}
	if len(conf.Files) == 0 {
		n.noCRIO = len(conf.Faults) == 0
		return found
	}
	n.crio = conf
	enable, blocks := conf.Get("crio", "nri", "enable_nri"), conf.NRIBlocks()
	if enable.IsNot("true") && checkCRIOHook(n, &found) {
		return found
	}
	for _, b := range blocks {
		found.add(Error, "set "+b.Key+" = "+b.Want+" in [crio.nri] at "+b.Place()+" and restart CRI-O", "%s %s", b.File,
			b.Effect)
	}
	switch {
	case len(blocks) > 0:
	case !enable.IsSet():
		found.add(Note, "", "CRI-O's configuration does not mention NRI: it is on by default since 1.30")
	default:
		n.nriOn = true
		found.addOK("%s has NRI on", enable.File)
	}
	return found
}

// checkCRIOHook reports whether CRI-O, which has NRI off, runs jackfield-hook instead.
func checkCRIOHook(n *node, found *findings) bool {
	file, program := findJackfieldHook(n, found, crioHooksDirs(n.crio))
	if file == "" {
		return false
	}
	if fault := cdiedits.CheckHook(n.Host, program); fault != nil {
		found.add(Error, "install jackfield-hook, or correct hook.path", "%s has CRI-O run %s, which %s", file, program,
			fault.Rule)
		return false
	}
	n.hookServesCRIO = true
	found.addOK("CRI-O runs %s by %s, and has NRI off: the hook delivers devices and sockets", program, file)
	return true
}

// findNRISocket finds the NRI socket and Podman.
func findNRISocket(_ context.Context, n *node) findings {
	socket := n.nriSocket()
	_, err := n.configFiles().At(socket).Lstat(socket)
	n.noNRISocket = errdefs.IsNotFound(err)
	n.hasPodman = slices.ContainsFunc([]string{"/usr/bin/podman", "/usr/local/bin/podman"}, func(file string) bool {
		_, err := n.configFiles().At(file).Stat(file)
		return err == nil
	})
	return nil
}

// checkRuntimes reports that no runtime of NRI is here.
func checkRuntimes(_ context.Context, n *node) (found findings) {
	switch {
	case n.isPodmanOnly():
		found.add(Note, "where containerd or CRI-O is here, too, name its file with --containerd-config or --crio-config",
			"there is Podman here, and neither containerd nor CRI-O: "+
				"containers get devices and sockets by jackfield-hook (podman, below), without NRI")
	case n.noContainerd && n.noCRIO:
		found.add(Note, "name the file with --containerd-config or --crio-config; in a pod that does not mount it, run "+
			"doctor on the node",
			"there is no configuration of containerd (%s) or CRI-O (%s) here: only the NRI socket shows whether NRI is on",
			n.ContainerdFile, n.CRIOFile)
	}
	return found
}

// isNRIFault reports whether a finding says why plugins cannot connect: one cause, one error.
func (n *node) isNRIFault() bool { return n.hasError("nri") || n.lacksNRI && !n.nriOn && n.noNRISocket }

// checkNRISocket checks whether the runtime listens at its NRI socket, and who can connect.
func checkNRISocket(_ context.Context, n *node) (found findings) {
	start := "turn NRI on in the runtime's configuration (`jackfield enable-nri`) and restart the runtime"
	if n.nriOn {
		start = "restart the runtime, whose configuration has NRI on, and see its log; containerd before 1.7 has no NRI"
	}
	socket := n.nriSocket()
	host := n.configFiles().At(socket)
	st, err := host.Stat(socket)
	// The first fault of the socket is the finding.
	switch {
	case errdefs.IsNotFound(err) && n.lacksNRI && !n.nriOn:
		found.add(Note, "", "there is no NRI socket %s (runtime, above)", socket)
		return found
	case errdefs.IsNotFound(err):
		remedy := start
		if n.noContainerd && n.noCRIO {
			remedy = "install containerd 1.7 or later, or CRI-O; where its files are elsewhere, " +
				"name them with --containerd-config, --crio-config or --nri-socket"
		}
		found.add(Error, remedy, "there is no NRI socket %s: NRI is off, or the runtime is not running", socket)
		return found
	case err != nil:
		found.addError("check the directory of the socket", err)
		return found
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		found.add(Error, "remove it and restart the runtime", "%s is a %s, not a socket", socket, hostfs.TypeName(st.Mode))
		return found
	case st.Mode&0o022 != 0:
		found.add(Error, "chmod go-w "+socket, "others than root can connect to the NRI socket %s (mode %04o), "+
			"and so change every container", socket, st.Mode&0o7777)
	}
	// The file stays when a runtime ends, or restarts with NRI off.
	switch bound, err := runtimeconfig.IsSocketBound(host, socket); {
	case err != nil:
		found.addError(start, err)
	case !bound:
		found.add(Error, start, "nothing listens at the NRI socket %s, an earlier process left the file: "+
			"NRI is off, plugins may not connect, or the runtime is not running", socket)
	default:
		found.addOK("the runtime listens at %s", socket)
	}
	return found
}
