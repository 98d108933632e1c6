// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/annotation"
)

// addInjectorRequests adds the requests of the annotations of NRI's device-injector, if
// the configuration accepts them. They need grants like any other request.
func addInjectorRequests(in *inputs, add func(candidate)) error {
	if !in.cfg.Compat.DeviceInjector || !annotation.HasInjector(in.req.Annotations) {
		return nil
	}
	requests, err := annotation.ParseInjector(in.req.Annotations, in.req.Container)
	if err != nil {
		return err
	}
	for _, n := range requests.Nodes {
		item := Item{Kind: KindDeviceInjector, Name: n.Path, Request: "device node " + strconv.Quote(n.Path), From: n.Key}
		add(candidate{item: item, resolve: func(d *delta) error {
			return inAnnotation(n.Key, n.Position, resolveInjectorNode(in, d, &n))
		}})
	}
	for _, m := range requests.Mounts {
		request := "mount " + strconv.Quote(m.Destination)
		item := Item{Kind: KindDeviceInjector, Name: m.Destination, Request: request, From: m.Key}
		add(candidate{item: item, resolve: func(d *delta) error {
			return inAnnotation(m.Key, m.Position, resolveInjectorMount(in, d, &m))
		}})
	}
	for i := range requests.Devices {
		addRequestedDevice(in, &requests.Devices[i], add)
	}
	return nil
}

// resolveInjectorNode adds a device node of the host, looked up at its path. The numbers in
// the annotation must agree with it.
func resolveInjectorNode(in *inputs, d *delta, n *annotation.InjectorNode) error {
	grant, err := in.policy.Device(in.subject(), n.Path)
	if err != nil {
		return err
	}
	d.item.noteGrant(grant)
	d.item.File, d.item.Rule = n.Path, grant.Rule
	st, err := in.host.StatNoSymlinks(n.Path)
	if err != nil {
		return fmt.Errorf("%w; a node is looked up at its path on the host, for the numbers of a pod are never taken; "+
			"a device of another name needs a CDI file", err)
	}
	kind := map[uint32]string{unix.S_IFCHR: "c", unix.S_IFBLK: "b"}[st.Mode&unix.S_IFMT]
	if kind == "" {
		return fmt.Errorf("%q is a %s: must be a device node: %w",
			n.Path, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	if kind != n.Type || major != n.Major || minor != n.Minor {
		return fmt.Errorf("found %s %d:%d, but %q is %s %d:%d on this host, and the numbers of a pod are never taken: %w",
			n.Type, n.Major, n.Minor, n.Path, kind, major, minor, errdefs.ErrConflict)
	}
	mode := os.FileMode(st.Mode & 0o777)
	if n.FileMode != nil {
		mode = os.FileMode(*n.FileMode)
	}
	return d.edits.AddDevice(&edit.Device{Path: n.Path, HostPath: n.Path, Type: kind, Major: major, Minor: minor,
		FileMode: &mode, UID: n.UID, GID: n.GID, Access: "rw",
		Origin: edit.Origin{Source: edit.Injector, Request: d.item.Request, File: n.Key, Rule: grant.Rule}})
}

// bindOptions are the mount options that a pod can set. Sharing mounts with the
// host is not among them.
var bindOptions = []string{"bind", "rbind", "ro", "rw", "nosuid", "nodev", "noexec",
	"private", "rprivate", "slave", "rslave", "relatime", "noatime", "nodiratime"}

// resolveInjectorMount adds a bind mount of a directory or file of the host. Its path must have no
// symlink.
func resolveInjectorMount(in *inputs, d *delta, m *annotation.InjectorMount) error {
	ro := mountopt.IsReadOnly(m.Options)
	options := slices.Clone(m.Options)
	for _, o := range options {
		if !slices.Contains(bindOptions, o) {
			return fmt.Errorf("options: invalid value %q: must be one of %v: %w", o, bindOptions, errdefs.ErrInvalidArgument)
		}
	}
	if !mountopt.IsBind(m.Type, options) || m.Type != "" && m.Type != "bind" {
		return fmt.Errorf("type: invalid value %q with the options %v: must be a bind mount: %w",
			m.Type, m.Options, errdefs.ErrInvalidArgument)
	}
	grant, err := in.policy.Mount(in.subject(), m.Source, m.Destination, ro)
	if err != nil {
		return err
	}
	d.item.noteGrant(grant)
	d.item.File, d.item.Rule = m.Source, grant.Rule
	if at := slices.Index(options, "rbind"); ro && at >= 0 {
		// Mounts below the source stay writable: they are included only if writing is granted.
		if g, err := in.policy.Mount(in.subject(), m.Source, m.Destination, false); err != nil || g.Audited {
			for ; at >= 0; at = slices.Index(options, "rbind") {
				options[at] = "bind"
			}
			d.addNotes("what is mounted below " + m.Source + " is left out: it could be written, and is granted read-only")
		}
	}
	dst, view := edit.Clean(m.Destination), edit.Clean(ContainerDir)
	if dir := reserved.DirInContainer(dst); dir != "" {
		return fmt.Errorf("destination: a mount at %q could hide what the image or the system has in %s: %w",
			m.Destination, dir, errdefs.ErrPermissionDenied)
	}
	if edit.IsUnder(view, dst) || edit.IsUnder(dst, view) {
		return fmt.Errorf("destination: %q overlaps %s: %w", m.Destination, ContainerDir, errdefs.ErrPermissionDenied)
	}
	st, err := in.host.StatNoSymlinks(m.Source)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFDIR && t != unix.S_IFREG {
		return fmt.Errorf("source: %q is a %s: must be a directory or file: %w",
			m.Source, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	for _, o := range []string{"nosuid", "nodev"} {
		if !slices.Contains(options, o) {
			options = append(options, o)
		}
	}
	if !mountopt.Parse(options).Bind {
		options = append([]string{"bind"}, options...)
	}
	origin := edit.Origin{Source: edit.Injector, Request: d.item.Request, File: m.Key, Rule: grant.Rule}
	return d.edits.AddMount(&edit.Mount{Destination: path.Clean(m.Destination), Source: in.host.Path(m.Source),
		Type: "bind", Options: options, Origin: origin})
}
