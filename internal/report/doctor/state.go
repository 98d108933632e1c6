// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// checkState checks the owner and mode of the state directory.
func checkState(_ context.Context, n *node) (found findings) {
	dir := n.cfg.StateDir
	st, err := n.Host.Lstat(dir)
	switch {
	case errdefs.IsNotFound(err):
		found.add(Note, "", "there is no state directory %s yet; jackfield-nri creates it", dir)
	case err != nil:
		found.add(Error, "", "the state directory %s: %v", dir, err)
	default:
		found.addDirMode(n.Host, "state directory", dir, &st, false)
	}
	return found
}

// checkStaging checks how sockets reach containers from the state directory.
func checkStaging(_ context.Context, n *node) (found findings) {
	dir := n.cfg.StateDir
	if _, err := n.Host.Lstat(dir); err != nil {
		return nil // which is reported
	}
	var mode staging.Status
	if n.daemon != nil && n.daemon.Staging != "" {
		mode = staging.Status{Mode: staging.Mode(n.daemon.Staging), Reason: staging.Reason(n.daemon.StagingReasonCode),
			Detail: n.daemon.StagingReason}
	} else {
		var err error
		if mode, err = staging.ReadStatus(n.Host, dir); errdefs.IsNotFound(err) {
			return nil // no daemon has run here
		} else if err != nil {
			found.add(Unknown, "restart jackfield-nri, which writes it", "how sockets reach containers is unknown: %v", err)
			return found
		}
	}
	isShared, known := isSharedMount(n.Host, edit.ContainersDir(dir))
	switch {
	case mode.Mode == staging.ModeMount && known && !isShared:
		found.add(Error, "mount --make-rshared on it (systemd: MountFlags=shared; Kubernetes: mountPropagation: "+
			"Bidirectional), "+
			"and restart jackfield-nri",
			"%s is not a shared mount here: sockets that are bound after a container started do not reach it", dir)
	case mode.Mode == staging.ModeMount:
		found.addOK("sockets are bound in %s and propagated: a container survives its vswitch's restart", dir)
	case mode.Reason == staging.ReasonConfigured:
		found.add(Note, "", "sockets are delivered as directory mounts, as the configuration asks: "+
			"where the policy does not grant the directory as a whole (DIR/**), the socket's file alone, "+
			"which is lost to running containers when the vswitch re-creates it")
	default:
		found.add(Warning, "give jackfield-nri the host's mount namespace (systemd: PrivateMounts=no; "+
			"Kubernetes: mountPropagation: Bidirectional) and CAP_SYS_ADMIN",
			"sockets are delivered as directory mounts (%s): one whose directory the vswitch replaces, "+
				"or the policy does not grant as a whole (DIR/**), is lost to running containers when it is re-created, "+
				"and networks cannot be added to them", mode.Detail)
	}
	return found
}

// isSharedMount reports whether the mount that a directory lies on is shared, as far as that is known.
func isSharedMount(host hostfs.Root, dir string) (isShared, known bool) {
	if !host.IsLive() {
		return false, false
	}
	around, on, err := hostfs.FindMount(host.Canonical(dir))
	if on != nil {
		around = *on
	}
	return around.Shared, err == nil && around.Point != ""
}

// addDirMode adds who can write to a directory that root relies on. It can remove the access of others than the owner.
// Socket roots and directories of named sockets can be sticky, and can belong to the vswitch's user. jackfield-nri
// rejects such a state directory.
func (f *findings) addDirMode(host hostfs.Root, title, dir string, st *unix.Stat_t, isOfSockets bool) {
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		f.add(Error, "", "the %s %s is a %s, not a directory", title, dir, hostfs.TypeName(st.Mode))
		return
	}
	bad := trust.Check(dir, st, trust.Options{Sticky: isOfSockets})
	if bad == nil {
		f.addOK("the %s %s has mode %04o", title, dir, st.Mode&0o7777)
		return
	}
	remedy := bad.Remedy
	if isOfSockets && bad.Owner {
		remedy = "unless that is the vswitch's own user, " + remedy
	}
	finding := f.add(Error, remedy, "the %s %s: found %s: %s", title, dir, bad.Found, bad.Rule)
	if !bad.Owner && !hostfs.IsSharedDir(dir, st.Mode) {
		checked := *st
		finding.correct = func(context.Context) error { return removeOthersWrite(host, dir, &checked) }
	}
}

// removeOthersWrite removes the write access to a directory of others than its owner. The directory
// must still be the one that was checked, below the root whatever symlinks lead to it.
func removeOthersWrite(host hostfs.Root, dir string, checked *unix.Stat_t) error {
	f, err := host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
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
func checkSocketRoots(_ context.Context, n *node) (found findings) {
	var usable []string
	for _, root := range n.cfg.Sockets.Roots {
		if n.unresponsive[root] {
			continue // which is reported
		}
		st, err := n.Host.Stat(root)
		switch {
		case errdefs.IsNotFound(err) && slices.Contains(config.Default().Sockets.Roots, root):
			found.add(Note, "", "there is no socket root %s yet; jackfield-cni creates it with the first network", root)
		case errdefs.IsNotFound(err):
			found.add(Warning, "start the vswitch that makes it, or take it out of sockets.roots",
				"the socket root %s does not exist", root)
		case err != nil:
			found.add(Error, "", "the socket root %s: %v", root, err)
		default:
			found.addDirMode(n.Host, "socket root", root, &st, true)
			usable = append(usable, root)
		}
	}
	found = append(found, checkNamedSockets(n)...)
	if !n.Host.IsLive() {
		return found // the visible mounts belong to this host, not to the node
	}
	for _, risk := range sockdir.CheckRootMounts(n.Host, n.cfg.StateDir, usable, n.cfg.Sockets.DirectoryBytes() > 0) {
		found.add(Warning, risk.Remedy, "%s", risk.Found)
	}
	return found
}

// checkNamedSockets checks the sockets that containers request by name, and who can replace them.
func checkNamedSockets(n *node) (found findings) {
	checked := make(map[string]bool) // directories
	for _, name := range slices.Sorted(maps.Keys(n.cfg.Sockets.Named)) {
		named := n.cfg.Sockets.Named[name]
		dir := path.Dir(named.Path)
		if n.unresponsive[dir] {
			continue // which is reported
		}
		at, err := n.Host.Resolve(dir)
		var st unix.Stat_t
		if err == nil {
			st, err = n.Host.StatNoSymlinks(path.Join(at, path.Base(named.Path)))
		}
		// A missing socket is a fault only if containers do not wait for it.
		switch {
		case errdefs.IsNotFound(err) && named.Create == config.SocketWait:
			found.add(Note, "", "the named socket %s does not exist: containers that request it get %s once its server creates "+
				"it",
				name, named.Path)
		case errdefs.IsNotFound(err):
			found.add(Warning, "start its server, or have containers wait with create: wait",
				"the named socket %s does not exist: containers that request %s are refused", name, named.Path)
		case err != nil:
			found.add(Error, "", "the named socket %s: %v", name, err)
		case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
			found.add(Error, "correct sockets.named."+name+".path", "the named socket %s: %s is a %s, not a socket",
				name, named.Path, hostfs.TypeName(st.Mode))
		default:
			found.addOK("the named socket %s is %s", name, named.Path)
		}
		if parent, err := n.Host.Stat(dir); err == nil && !checked[dir] {
			checked[dir] = true
			found.addDirMode(n.Host, "directory of the named socket "+name+",", dir, &parent, true)
		}
	}
	return found
}

// checkKubelet checks the sockets at which the kubelet reports pods, and the devices that it allocated.
func checkKubelet(_ context.Context, n *node) (found findings) {
	pods := n.cfg.Kubelet.PodsSocket
	if st, err := n.Host.Stat(pods); err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		found.addOK("the socket of the Pods API is %s", pods)
	} else if err == nil {
		found.add(Error, "set kubelet.podsSocket to the kubelet's socket", "%s is a %s, not a socket", pods,
			hostfs.TypeName(st.Mode))
	}
	socket := n.cfg.Kubelet.PodResourcesSocket
	st, err := n.Host.Stat(socket)
	switch {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK:
		found.addOK("the Pod Resources socket is %s", socket)
	case err == nil:
		found.add(Error, "", "%s is a %s, not a socket", socket, hostfs.TypeName(st.Mode))
	case n.cfg.Kubelet.Required:
		found.add(Error, "start the kubelet, and mount the socket's directory into a DaemonSet; or set kubelet.required to "+
			"false",
			"the Pod Resources socket cannot be used (%v), and kubelet.required is true: "+
				"no container gets a PCI or vDPA device", err)
	default:
		found.add(Note, "on a Kubernetes node, mount the socket's directory into a DaemonSet and set kubelet.required",
			"there is no Pod Resources socket %s: a container's environment says which devices are its own", socket)
	}
	return found
}
