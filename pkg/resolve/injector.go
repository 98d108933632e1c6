// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// asks reports whether any annotation concerns this engine.
func (e *Engine) asks(annotations map[string]string) bool {
	if len(annotations) == 0 {
		return false
	}
	return annotation.HasAny(annotations) || e.cfg.Compat.DeviceInjector && annotation.HasInjector(annotations)
}

// MayAsk reports whether a pod's annotations ask for anything, or name networks that
// the engine could be in charge of. It reads no file: where none can be read, this
// is who must not go without.
func (e *Engine) MayAsk(annotations map[string]string) bool {
	return e.asks(annotations) || annotations[attachment.NetworksAnnotation] != "" || annotations[defaultNetwork] != ""
}

// defaultNetwork is the annotation by which Multus gives a pod another network in
// place of the cluster's own.
const defaultNetwork = "v1.multus-cni.io/default-network"

// injector delivers what the annotations of NRI's device-injector ask for, where
// the configuration takes them, under policy.
func (p *planner) injector() {
	if !p.cfg.Compat.DeviceInjector || !annotation.HasInjector(p.req.Annotations) {
		return
	}
	wants, err := annotation.ParseInjector(p.req.Annotations, p.req.Container)
	if err != nil {
		p.errs = append(p.errs, err)
		return
	}
	for _, n := range wants.Nodes {
		p.attempt(Item{Kind: KindDeviceInjector, Request: "device node " + strconv.Quote(n.Path), From: n.Key}, false, func(item *Item) error {
			return asked(n.Request, p.injectNode(&n, item))
		})
	}
	for _, m := range wants.Mounts {
		p.attempt(Item{Kind: KindDeviceInjector, Request: "mount " + strconv.Quote(m.Destination), From: m.Key}, false, func(item *Item) error {
			return asked(m.Request, p.injectMount(&m, item))
		})
	}
	for _, d := range wants.Devices {
		p.device(d)
	}
}

// asked puts the annotation and the item in front.
func asked(r annotation.Request, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("annotation %s, item %d: %w", r.Key, r.Position, err)
}

// injectNode adds a device node of the host, looked up at its path. The numbers that
// the pod gives can only agree.
func (p *planner) injectNode(n *annotation.InjectorNode, item *Item) error {
	grant, err := p.policy.Device(p.subject, n.Path)
	if err != nil {
		return err
	}
	noteAudit(item, grant)
	item.File, item.Rule = n.Path, grant.Rule
	st, err := p.host.StatNoSymlinks(n.Path)
	if err != nil {
		return fmt.Errorf("%w; a node is looked up at its path on the host, for the numbers of a pod are never taken; a device of another name needs a CDI file", err)
	}
	kind := map[uint32]string{unix.S_IFCHR: "c", unix.S_IFBLK: "b"}[st.Mode&unix.S_IFMT]
	if kind == "" {
		return fmt.Errorf("%q is a %s, want a device node: %w", n.Path, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
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
	return p.b.AddDevice(&edits.Device{Path: n.Path, HostPath: n.Path, Type: kind, Major: major, Minor: minor, FileMode: &mode, UID: n.UID, GID: n.GID,
		Access: "rw", Origin: edits.Origin{Source: edits.Injector, Request: item.Request, File: n.Key, Rule: grant.Rule}})
}

// bindOptions are those that a pod may give a bind mount. Sharing mounts with the
// host is not among them.
var bindOptions = []string{"bind", "rbind", "ro", "rw", "nosuid", "nodev", "noexec", "private", "rprivate", "slave", "rslave", "relatime", "noatime", "nodiratime"}

// ReadOnly reports whether a mount with these options cannot be written: of ro and rw
// the last one counts. With an option that makes what is mounted writable by another way
// (rrw), or that is not known, the mount counts as writable.
func ReadOnly(options []string) bool {
	ro := false
	for _, o := range options {
		if !slices.Contains(harmlessOptions, o) {
			return false
		}
		ro = o == "ro" || ro && o != "rw"
	}
	return ro
}

// harmlessOptions are the mount options that have no part in whether a mount can be
// written, and ro, rw and rro.
var harmlessOptions = []string{"ro", "rw", "rro", "bind", "rbind", "defaults", "private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable",
	"suid", "nosuid", "rsuid", "rnosuid", "dev", "nodev", "rdev", "rnodev", "exec", "noexec", "rexec", "rnoexec", "sync", "async", "dirsync",
	"atime", "noatime", "ratime", "rnoatime", "diratime", "nodiratime", "rdiratime", "rnodiratime", "relatime", "norelatime", "rrelatime", "rnorelatime",
	"strictatime", "nostrictatime", "rstrictatime", "rnostrictatime", "symfollow", "nosymfollow", "rsymfollow", "rnosymfollow"}

// injectMount adds a bind mount of a directory or file of the host that no symlink
// is on the way to.
func (p *planner) injectMount(m *annotation.InjectorMount, item *Item) error {
	bind, ro := m.Type == "bind", ReadOnly(m.Options)
	options := slices.Clone(m.Options)
	for _, o := range options {
		if !slices.Contains(bindOptions, o) {
			return fmt.Errorf("options: found %q, want some of %v: %w", o, bindOptions, errdefs.ErrInvalidArgument)
		}
		bind = bind || o == "bind" || o == "rbind"
	}
	if !bind || m.Type != "" && m.Type != "bind" {
		return fmt.Errorf("type: found %q with the options %v, want a bind mount: %w", m.Type, m.Options, errdefs.ErrInvalidArgument)
	}
	grant, err := p.policy.Mount(p.subject, m.Source, m.Destination, ro)
	if err != nil {
		return err
	}
	noteAudit(item, grant)
	item.File, item.Rule = m.Source, grant.Rule
	if at := slices.Index(options, "rbind"); ro && at >= 0 {
		// What is mounted below it stays as it is, and can be written: it comes along
		// only where that is granted, too.
		if g, err := p.policy.Mount(p.subject, m.Source, m.Destination, false); err != nil || g.Audited {
			for ; at >= 0; at = slices.Index(options, "rbind") {
				options[at] = "bind"
			}
			item.Notes = append(item.Notes, "what is mounted below "+m.Source+" is left out: it could be written, and is granted read-only")
		}
	}
	// It is above Jackfield's own directory, below it, or hides the system's.
	dst, view := edits.Clean(m.Destination), edits.Clean(ContainerDir)
	if reserved := reservedDir(dst); reserved != "" {
		return fmt.Errorf("destination: a mount at %q could hide what the image or the system has in %s: %w", m.Destination, reserved, errdefs.ErrPermissionDenied)
	}
	if edits.WithinClean(view, dst) || edits.WithinClean(dst, view) {
		return fmt.Errorf("destination: %q overlaps %s: %w", m.Destination, ContainerDir, errdefs.ErrPermissionDenied)
	}
	st, err := p.host.StatNoSymlinks(m.Source)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFDIR && t != unix.S_IFREG {
		return fmt.Errorf("source: %q is a %s, want a directory or file: %w", m.Source, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	for _, o := range []string{"nosuid", "nodev"} {
		if !slices.Contains(options, o) {
			options = append(options, o)
		}
	}
	if !slices.Contains(options, "bind") && !slices.Contains(options, "rbind") {
		options = append([]string{"bind"}, options...)
	}
	return p.b.AddMount(&edits.Mount{Destination: path.Clean(m.Destination), Source: p.host.Path(m.Source), Type: "bind", Options: options,
		Origin: edits.Origin{Source: edits.Injector, Request: item.Request, File: m.Key, Rule: grant.Rule}})
}
