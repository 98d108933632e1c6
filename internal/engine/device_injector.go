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

// deliverInjectorRequests delivers what the annotations of NRI's device-injector request, where
// the configuration accepts them, under policy.
func (p *planner) deliverInjectorRequests() {
	if !p.cfg.Compat.DeviceInjector || !annotation.HasInjector(p.req.Annotations) {
		return
	}
	wants, err := annotation.ParseInjector(p.req.Annotations, p.req.Container)
	if err != nil {
		p.fail(err)
		return
	}
	for _, n := range wants.Nodes {
		p.deliver(Item{Kind: KindDeviceInjector, Name: n.Path, Request: "device node " + strconv.Quote(n.Path), From: n.Key}, func(item *Item) error {
			return inAnnotation(n.Key, n.Position, p.addInjectorNode(&n, item))
		})
	}
	for _, m := range wants.Mounts {
		p.deliver(Item{Kind: KindDeviceInjector, Name: m.Destination, Request: "mount " + strconv.Quote(m.Destination), From: m.Key}, func(item *Item) error {
			return inAnnotation(m.Key, m.Position, p.addInjectorMount(&m, item))
		})
	}
	for _, d := range wants.Devices {
		p.deliverRequestedDevice(d)
	}
}

// addInjectorNode adds a device node of the host, looked up at its path. The numbers in
// the annotation must agree with it.
func (p *planner) addInjectorNode(n *annotation.InjectorNode, item *Item) error {
	grant, err := p.policy.Device(p.subject, n.Path)
	if err != nil {
		return err
	}
	item.noteGrant(grant)
	item.File, item.Rule = n.Path, grant.Rule
	st, err := p.host.StatNoSymlinks(n.Path)
	if err != nil {
		return fmt.Errorf("%w; a node is looked up at its path on the host, for the numbers of a pod are never taken; a device of another name needs a CDI file", err)
	}
	kind := map[uint32]string{unix.S_IFCHR: "c", unix.S_IFBLK: "b"}[st.Mode&unix.S_IFMT]
	if kind == "" {
		return fmt.Errorf("%q is a %s: must be a device node: %w", n.Path, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
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
	return p.b.AddDevice(&edit.Device{Path: n.Path, HostPath: n.Path, Type: kind, Major: major, Minor: minor, FileMode: &mode, UID: n.UID, GID: n.GID,
		Access: "rw", Origin: edit.Origin{Source: edit.Injector, Request: item.Request, File: n.Key, Rule: grant.Rule}})
}

// bindOptions are those that a pod may give a bind mount. Sharing mounts with the
// host is not among them.
var bindOptions = []string{"bind", "rbind", "ro", "rw", "nosuid", "nodev", "noexec", "private", "rprivate", "slave", "rslave", "relatime", "noatime", "nodiratime"}

// addInjectorMount adds a bind mount of a directory or file of the host. Its path must have no
// symlink.
func (p *planner) addInjectorMount(m *annotation.InjectorMount, item *Item) error {
	ro := mountopt.IsReadOnly(m.Options)
	options := slices.Clone(m.Options)
	for _, o := range options {
		if !slices.Contains(bindOptions, o) {
			return fmt.Errorf("options: invalid value %q: must be one of %v: %w", o, bindOptions, errdefs.ErrInvalidArgument)
		}
	}
	if !mountopt.IsBind(m.Type, options) || m.Type != "" && m.Type != "bind" {
		return fmt.Errorf("type: invalid value %q with the options %v: must be a bind mount: %w", m.Type, m.Options, errdefs.ErrInvalidArgument)
	}
	grant, err := p.policy.Mount(p.subject, m.Source, m.Destination, ro)
	if err != nil {
		return err
	}
	item.noteGrant(grant)
	item.File, item.Rule = m.Source, grant.Rule
	if at := slices.Index(options, "rbind"); ro && at >= 0 {
		// Mounts below the source stay writable: they are included only if writing is granted.
		if g, err := p.policy.Mount(p.subject, m.Source, m.Destination, false); err != nil || g.Audited {
			for ; at >= 0; at = slices.Index(options, "rbind") {
				options[at] = "bind"
			}
			item.Notes = append(item.Notes, "what is mounted below "+m.Source+" is left out: it could be written, and is granted read-only")
		}
	}
	dst, view := edit.Clean(m.Destination), edit.Clean(ContainerDir)
	if dir := reserved.DirInContainer(dst); dir != "" {
		return fmt.Errorf("destination: a mount at %q could hide what the image or the system has in %s: %w", m.Destination, dir, errdefs.ErrPermissionDenied)
	}
	if edit.IsUnder(view, dst) || edit.IsUnder(dst, view) {
		return fmt.Errorf("destination: %q overlaps %s: %w", m.Destination, ContainerDir, errdefs.ErrPermissionDenied)
	}
	st, err := p.host.StatNoSymlinks(m.Source)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFDIR && t != unix.S_IFREG {
		return fmt.Errorf("source: %q is a %s: must be a directory or file: %w", m.Source, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	for _, o := range []string{"nosuid", "nodev"} {
		if !slices.Contains(options, o) {
			options = append(options, o)
		}
	}
	if !mountopt.Parse(options).Bind {
		options = append([]string{"bind"}, options...)
	}
	return p.b.AddMount(&edit.Mount{Destination: path.Clean(m.Destination), Source: p.host.Path(m.Source), Type: "bind", Options: options,
		Origin: edit.Origin{Source: edit.Injector, Request: item.Request, File: m.Key, Rule: grant.Rule}})
}
