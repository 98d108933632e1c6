// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// checkState checks the state directory, and how sockets get into containers from it.
func (d *doctor) checkState() {
	dir := d.cfg.StateDir
	st, err := d.Host.Lstat(dir)
	switch {
	case errdefs.IsNotFound(err):
		d.report("state", Note, "", "there is no state directory %s yet; jackfield-nri creates it", dir)
		return
	case err != nil:
		d.report("state", Error, "", "the state directory %s: %v", dir, err)
		return
	}
	d.checkDirMode("state", "state directory", dir, &st)
	var status staging.Status
	if d.node != nil && d.node.Staging != "" {
		status = staging.Status{Mode: staging.Mode(d.node.Staging), Reason: staging.Reason(d.node.StagingReasonCode), Detail: d.node.StagingReason}
	} else if status, err = staging.ReadStatus(d.Host, dir); errdefs.IsNotFound(err) {
		return // no daemon has run here
	} else if err != nil {
		d.report("staging", Unknown, "restart jackfield-nri, which writes it", "how sockets reach containers is not known: %v", err)
		return
	}
	if status.Mode == staging.ModeMount {
		if shared, known := d.isShared(edit.ContainersDir(dir)); known && !shared {
			d.report("staging", Error, "mount --make-rshared on it (systemd: MountFlags=shared; Kubernetes: mountPropagation: Bidirectional), and restart jackfield-nri",
				"%s is not a shared mount here: sockets that are bound after a container started do not reach it", dir)
			return
		}
		d.reportOK("staging", "sockets are bound in %s and propagated: a container survives its vswitch's restart", dir)
		return
	}
	if status.Reason == staging.ReasonConfigured {
		d.report("staging", Note, "", "sockets are delivered as directory mounts, as the configuration asks: where the policy does not grant the directory as a whole (DIR/**), the socket's file alone, which is lost to running containers when the vswitch re-creates it")
		return
	}
	d.report("staging", Warning, "give jackfield-nri the host's mount namespace (systemd: PrivateMounts=no; Kubernetes: mountPropagation: Bidirectional) and CAP_SYS_ADMIN",
		"sockets are delivered as directory mounts (%s): one whose directory the vswitch replaces, or the policy does not grant as a whole (DIR/**), is lost to running containers when it is re-created, and networks cannot be added to them", status.Detail)
}

// isShared reports whether the mount that a directory lies on is shared, as far as that is known.
func (d *doctor) isShared(dir string) (shared, known bool) {
	if !d.Host.IsLive() {
		return false, false
	}
	around, on, err := hostfs.FindMount(d.Host.Canonical(dir))
	if on != nil {
		around = *on
	}
	return around.Shared, err == nil && around.Point != ""
}

// checkDirMode reports who may write to a directory that root relies on, and removes that access
// where the caller asks for fixes.
func (d *doctor) checkDirMode(check, what, dir string, st *unix.Stat_t) {
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		d.report(check, Error, "", "the %s %s is a %s, not a directory", what, dir, hostfs.TypeName(st.Mode))
		return
	}
	// jackfield-nri refuses a sticky state directory, too.
	bad := trust.Check(dir, st, trust.Options{Sticky: check == "sockets"})
	if bad == nil {
		d.reportOK(check, "the %s %s has mode %04o", what, dir, st.Mode&0o7777)
		return
	}
	f := d.report(check, Error, bad.Remedy, "the %s %s: found %s: %s", what, dir, bad.Found, bad.Rule)
	if check == "sockets" && bad.Owner {
		f.Remedy = "unless that is the vswitch's own user, " + f.Remedy
	}
	if !d.Fix || bad.Owner || hostfs.IsSharedDir(dir, st.Mode) {
		return
	}
	if err := d.removeOthersWrite(dir, st); err != nil {
		f.Found += fmt.Sprintf("; it cannot be corrected: %v", diag.ErrorText(err))
		return
	}
	f.Fixed = true
}

// removeOthersWrite removes the write access to a directory of others than its owner. The directory
// must still be the one that was checked, below the root whatever symlinks lead to it.
func (d *doctor) removeOthersWrite(dir string, checked *unix.Stat_t) error {
	f, err := d.Host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if hostfs.StatID(&st) != hostfs.StatID(checked) {
		return fmt.Errorf("%s is another directory now: %w", dir, errdefs.ErrAborted)
	}
	return unix.Fchmod(int(f.Fd()), st.Mode&0o7777&^0o022)
}

// checkSocketRoots checks the directories below which sockets are delivered from.
func (d *doctor) checkSocketRoots() {
	var usable []string
	for _, root := range d.cfg.Sockets.Roots {
		if d.unresponsive[root] {
			continue // which is reported
		}
		st, err := d.Host.Stat(root)
		switch {
		case errdefs.IsNotFound(err) && slices.Contains(config.Default().Sockets.Roots, root):
			d.report("sockets", Note, "", "there is no socket root %s yet; jackfield-cni creates it with the first network", root)
		case errdefs.IsNotFound(err):
			d.report("sockets", Warning, "start the vswitch that makes it, or take it out of sockets.roots", "the socket root %s does not exist", root)
		case err != nil:
			d.report("sockets", Error, "", "the socket root %s: %v", root, err)
		default:
			d.checkDirMode("sockets", "socket root", root, &st)
			usable = append(usable, root)
		}
	}
	d.checkNamedSockets()
	if !d.Host.IsLive() {
		return // how a tree is mounted on this host says nothing of its node
	}
	for _, risk := range staging.CheckRootMounts(d.Host, d.cfg.StateDir, usable, d.cfg.Sockets.DirectoryBytes() > 0) {
		d.report("sockets", Warning, risk.Remedy, "%s", risk.Found)
	}
}

// checkNamedSockets checks the sockets that containers request by name, and who can replace them.
func (d *doctor) checkNamedSockets() {
	checked := make(map[string]bool) // directories
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Sockets.Named)) {
		named := d.cfg.Sockets.Named[name]
		dir := path.Dir(named.Path)
		if d.unresponsive[dir] {
			continue // which is reported
		}
		at, err := d.Host.Resolve(dir)
		var st unix.Stat_t
		if err == nil {
			st, err = d.Host.StatNoSymlinks(path.Join(at, path.Base(named.Path)))
		}
		switch {
		case errdefs.IsNotFound(err) && named.Create == config.SocketWait:
			d.report("sockets", Note, "", "the named socket %s does not exist: containers that request it get %s once its server creates it", name, named.Path)
		case errdefs.IsNotFound(err):
			d.report("sockets", Warning, "start its server, or have containers wait with create: wait", "the named socket %s does not exist: containers that request %s are refused", name, named.Path)
		case err != nil:
			d.report("sockets", Error, "", "the named socket %s: %v", name, err)
		case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
			d.report("sockets", Error, "correct sockets.named."+name+".path", "the named socket %s: %s is a %s, not a socket", name, named.Path, hostfs.TypeName(st.Mode))
		default:
			d.reportOK("sockets", "the named socket %s is %s", name, named.Path)
		}
		if parent, err := d.Host.Stat(dir); err == nil && !checked[dir] {
			checked[dir] = true
			d.checkDirMode("sockets", "directory of the named socket "+name+",", dir, &parent)
		}
	}
}

// checkKubelet checks the socket at which the kubelet says which devices it allocated.
func (d *doctor) checkKubelet() {
	socket := d.cfg.Kubelet.PodResourcesSocket
	st, err := d.Host.Stat(socket)
	switch {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK:
		d.reportOK("kubelet", "the Pod Resources socket is %s", socket)
	case err == nil:
		d.report("kubelet", Error, "", "%s is a %s, not a socket", socket, hostfs.TypeName(st.Mode))
	case d.cfg.Kubelet.Required:
		d.report("kubelet", Error, "start the kubelet, and mount the socket's directory into a DaemonSet; or set kubelet.required to false", "the Pod Resources socket cannot be used (%v), and kubelet.required is true: no container gets a PCI or vDPA device", err)
	default:
		d.report("kubelet", Note, "on a Kubernetes node, mount the socket's directory into a DaemonSet and set kubelet.required", "there is no Pod Resources socket %s: a container's environment says which devices are its own", socket)
	}
}
