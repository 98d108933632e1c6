// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/staging"
)

// maxSaid bounds the findings of one kind; the rest is counted.
const maxSaid = 20

// state looks at the state directory and how sockets get into containers from it.
func (d *doctor) state() {
	dir := d.cfg.StateDir
	st, err := d.host.Lstat(dir)
	switch {
	case errdefs.IsNotFound(err):
		d.say("state", severityNote, "", "there is no state directory %s yet; jackfield-nri makes it", dir)
		return
	case err != nil:
		d.say("state", severityError, "", "the state directory %s: %v", dir, err)
		return
	}
	d.safeDir("state", "state directory", dir, &st, severityError)
	mode, reason := staging.Directories, ""
	if d.node != nil && d.node.Staging != "" {
		mode, reason = staging.Mode(d.node.Staging), d.node.StagingReason
	} else if s, err := staging.ReadStatus(d.host, dir); err == nil {
		mode, reason = s.Mode, s.Reason
	} else {
		return
	}
	if mode == staging.Mounts {
		if shared, known := d.shared(staging.ContainersDir(dir)); known && !shared {
			d.say("staging", severityError, "mount --make-rshared on it (systemd: MountFlags=shared; Kubernetes: mountPropagation: Bidirectional), and restart jackfield-nri",
				"%s is not a shared mount here: sockets that are bound after a container started do not reach it", dir)
			return
		}
		d.ok("staging", "sockets are bound in %s and propagated: a container survives its vswitch's restart", dir)
		return
	}
	if reason == staging.ReasonConfigured {
		d.say("staging", severityNote, "", "sockets are delivered as directory mounts, as the configuration asks: where the policy does not grant the directory as a whole (DIR/**), the socket's file alone, which is lost to running containers when the vswitch re-creates it")
		return
	}
	d.say("staging", severityWarning, "give jackfield-nri the host's mount namespace (systemd: PrivateMounts=no; Kubernetes: mountPropagation: Bidirectional) and CAP_SYS_ADMIN",
		"sockets are delivered as directory mounts (%s): one whose directory the vswitch replaces, or the policy does not grant as a whole (DIR/**), is lost to running containers when it is re-created, and networks cannot be added to them", reason)
}

// shared tells whether the mount that a directory lies on is shared, on this host.
func (d *doctor) shared(dir string) (shared, known bool) {
	if notInUse(d.host) {
		return false, false
	}
	mounts, err := hostfs.Mounts()
	if err != nil {
		return false, false
	}
	if real, err := d.host.Resolve(dir); err == nil {
		dir = real
	}
	best := ""
	for i := range mounts {
		m := &mounts[i]
		if (m.Point == "/" || dir == m.Point || strings.HasPrefix(dir, m.Point+"/")) && len(m.Point) >= len(best) {
			best, known, shared = m.Point, true, m.Shared
		}
	}
	return shared, known
}

// safeDir says who may write to a directory that root relies on, and takes that
// away with --fix. It reports whether it is one.
func (d *doctor) safeDir(check, what, dir string, st *unix.Stat_t, severity string) bool {
	mode := st.Mode & 0o7777
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		d.say(check, severityError, "", "the %s %s is a %s, not a directory", what, dir, hostfs.TypeName(st.Mode))
	case st.Uid != 0 && int(st.Uid) != os.Geteuid() && !notInUse(d.host):
		remedy := "run `chown root " + dir + "`"
		if hostfs.IsSharedDir(dir, st.Mode) {
			remedy = "choose a directory that belongs to root"
		} else if check == "sockets" {
			remedy = "unless that is the vswitch's own user, " + remedy
		}
		d.say(check, severity, remedy, "the %s %s belongs to uid %d, who can put there what containers get", what, dir, st.Uid)
	case mode&0o022 != 0 && (mode&unix.S_ISVTX == 0 || check == "state"): // jackfield-nri refuses a sticky state directory, too
		f := d.say(check, severity, hostfs.WriteRemedy(dir, st.Mode), "others than its owner can write to the %s %s (mode %04o)", what, dir, mode)
		if d.fix && !hostfs.IsSharedDir(dir, st.Mode) {
			if err := d.withoutOthers(dir, st); err != nil {
				f.Found += fmt.Sprintf("; it cannot be mended: %v", err)
			} else {
				f.Fixed = true
			}
		}
	default:
		d.ok(check, "the %s %s has mode %04o", what, dir, mode)
		return true
	}
	return false
}

// withoutOthers takes write access to a directory away from others than its owner. It
// is the one that was looked at, below the root whatever symlinks lead to it.
func (d *doctor) withoutOthers(dir string, looked *unix.Stat_t) error {
	f, err := d.host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Dev != looked.Dev || st.Ino != looked.Ino {
		return fmt.Errorf("%s is another directory now: %w", dir, errdefs.ErrAborted)
	}
	return unix.Fchmod(int(f.Fd()), st.Mode&0o7777&^0o022)
}

// sockets looks at the roots below which sockets are delivered from.
func (d *doctor) sockets() {
	var usable []string
	for _, root := range d.cfg.Sockets.Roots {
		if d.hanging[root] {
			continue // it is said already
		}
		st, err := d.host.Stat(root)
		switch {
		case errdefs.IsNotFound(err):
			d.say("sockets", severityWarning, "start the vswitch that makes it, or take it out of sockets.roots", "the socket root %s does not exist", root)
		case err != nil:
			d.say("sockets", severityError, "", "the socket root %s: %v", root, err)
		default:
			d.safeDir("sockets", "socket root", root, &st, severityError)
			usable = append(usable, root)
		}
	}
	if notInUse(d.host) {
		return // how a tree is mounted here says nothing of the node
	}
	for _, risk := range staging.CheckRootMounts(d.host, d.cfg.StateDir, usable, d.cfg.Sockets.DirectoryBytes() > 0) {
		d.say("sockets", severityWarning, risk.Remedy, "%s", risk.Found)
	}
}

func (d *doctor) cdi(s *cdiregistry.Snapshot) {
	bad := 0
	for _, dir := range s.Dirs() {
		if dir.Err != nil {
			bad++
			d.say("cdi", severityError, "", "%v", dir.Err)
		}
	}
	size := s.Size()
	said := 0
	for _, f := range s.Files() {
		if f.Err == nil {
			continue
		}
		if said++; said <= maxSaid {
			d.say("cdi", severityError, "mend or remove it: `jackfield validate "+f.Path+"` has every finding", "%v", f.Err)
		}
	}
	d.more("cdi", said)
	if bad+said == 0 {
		d.ok("cdi", "%s in %s", number(size.Devices, "device"), number(size.Files, "file"))
	}
}

func (d *doctor) more(check string, said int) {
	if said > maxSaid {
		d.say(check, severityError, "", "and %d more", said-maxSaid)
	}
}

func (d *doctor) deviceInfo() {
	dirs := dirsOf(d.host, d.cfg)
	networks, err1 := dirs.networks("")
	plugins, err2 := dirs.plugins()
	if err := errors.Join(err1, err2); err != nil {
		d.say("device-info", severityError, "", "%v", err)
		return
	}
	said := 0
	for _, f := range append(networks, plugins...) {
		if f.Valid {
			continue
		}
		if said++; said <= maxSaid {
			first := f.File
			if len(f.Findings) > 0 {
				first = f.Findings[0].String()
			}
			d.say("device-info", severityError, "its writer has to mend it: `jackfield validate "+f.File+"` has every finding", "%s", first)
		}
	}
	d.more("device-info", said)
	if said == 0 {
		d.ok("device-info", "%s of network attachments, %d of device plugins", number(len(networks), "file"), len(plugins))
	}
}

// orphans looks for what belongs to sandboxes that are gone. Which live, the daemon
// knows from the runtime.
func (d *doctor) orphans(s *cdiregistry.Snapshot) {
	d.hookOrphans()
	if d.node == nil || !d.node.Registered {
		return // it is reported with the plugin, which knows the pods that live
	}
	var alive, owners []string
	for _, sb := range d.node.Sandboxes {
		alive = append(alive, sb.ID)
		owners = append(owners, sb.ID)
		if sb.UID != "" {
			owners = append(owners, sb.UID)
		}
	}
	before := time.Now().Add(-defaultAge)
	found := d.deviceInfoOrphans(alive, before)
	found += d.multusOrphans(alive, before)
	found += d.stagingOrphans(alive, before)
	found += d.transientOrphans(s, owners, before)
	if found == 0 {
		d.ok("orphans", "nothing is left of pods that are gone")
	}
}

// transientOrphans tells of CDI files that are named by an ID of no pod that lives.
// That of a claim or of a container is one as well, and which of them live the
// daemon does not know.
func (d *doctor) transientOrphans(s *cdiregistry.Snapshot, owners []string, before time.Time) int {
	var left []string
	for _, t := range orphans(ofLastDirectory(s), owners, before) {
		if keptID().MatchString(t.ID) || uidAlone().MatchString(t.ID) {
			left = append(left, t.File.Path)
		}
	}
	if len(left) > 0 {
		d.say("orphans", severityNote, "`jackfield cdi transient --alive FILE` lists those whose claim or container is gone, by a list of those that live; with --remove it removes them",
			"%s named by an ID of no pod that lives, as %s: owned by claims or containers, or left behind by what is gone", number(len(left), "CDI file"), left[0])
	}
	return len(left)
}

// gone tells whether a file is older than before.
func (d *doctor) gone(file string, before time.Time) bool {
	st, err := d.host.Lstat(file)
	return err == nil && time.Unix(st.Mtim.Unix()).Before(before)
}

func (d *doctor) deviceInfoOrphans(alive []string, before time.Time) int {
	dirs := dirsOf(d.host, d.cfg)
	names, _ := d.host.ReadDir(dirs.cni.Dir, maxNames)
	slices.Sort(names)
	left, removed := 0, 0
	for _, name := range names {
		if !orphan(name, alive) || !d.gone(path.Join(dirs.cni.Dir, name), before) {
			continue
		}
		left++
		if d.fix && dirs.cni.Remove(name) == nil {
			removed++
		}
	}
	if left > 0 {
		f := d.say("orphans", severityWarning, "`jackfield doctor --fix` removes them", "%s in %s of sandboxes that are gone", number(left, "device-info file"), dirs.cni.Dir)
		f.Fixed = removed == left
	}
	return left
}

// multusOrphans are told and left: Multus needs them for the DEL that it still owes.
func (d *doctor) multusOrphans(alive []string, before time.Time) int {
	left := 0
	for _, dir := range []string{d.cfg.Multus.CacheDir, path.Join(d.cfg.Multus.CacheDir, "results")} {
		names, _ := d.host.ReadDir(dir, maxNames)
		for _, name := range names {
			id := sandboxID().FindString(name)
			if id != "" && !slices.Contains(alive, id) && d.gone(path.Join(dir, name), before) {
				left++
			}
		}
	}
	if left > 0 {
		d.say("orphans", severityNote, "Multus removes them at the DEL of the sandbox; where that never comes, remove those that are older than the node's start", "%s in %s of sandboxes that are gone",
			number(left, "cache file"), d.cfg.Multus.CacheDir)
	}
	return left
}

var sandboxID = lazy(`[0-9a-f]{64}`)

func (d *doctor) stagingOrphans(alive []string, before time.Time) int {
	left := 0
	dir := staging.SandboxesDir(d.cfg.StateDir)
	names, _ := d.host.ReadDir(dir, maxNames)
	for _, name := range names {
		if !slices.Contains(alive, name) && d.gone(path.Join(dir, name), before) {
			left++
		}
	}
	if left > 0 {
		d.say("orphans", severityWarning, "restart jackfield-nri: it removes them when the runtime has told it what lives; its log says what stands in the way", "%s in %s of sandboxes that are gone",
			number(left, "record"), dir)
	}
	return left
}

// hookPatience bounds the look for what has containers of the OCI hook mounted.
const hookPatience = 10 * time.Second

// hookOrphans looks for what the OCI hook made for containers that are gone. Which
// live, the mount tables of the host's processes say.
func (d *doctor) hookOrphans() {
	dir := staging.HookDir(d.cfg.StateDir)
	if _, err := d.host.Lstat(dir); err != nil {
		return
	}
	store, err := staging.Open(d.host, dir, staging.Options{Owner: staging.HookOwner, Shared: true, Present: true})
	if err != nil {
		d.say("orphans", severityWarning, "run it as root", "what is left of the OCI hook's containers that are gone cannot be told: %v", err)
		return
	}
	left, err := store.Left(staging.Settled, hookPatience)
	if err != nil {
		d.say("orphans", severityWarning, "run it as root", "what is left of the OCI hook's containers that are gone cannot be told: %v", err)
		return
	}
	if len(left) == 0 {
		return
	}
	f := d.say("orphans", severityWarning, "`jackfield doctor --fix` removes them", "%s in %s of the OCI hook's containers that are gone",
		number(len(left), "record"), staging.SandboxesDir(dir))
	if !d.fix {
		return
	}
	n, err := store.Sweep(staging.Settled, hookPatience)
	f.Fixed = n == len(left)
	if err := errors.Join(err, store.Tidy()); err != nil {
		d.say("orphans", severityError, "", "%v", err)
	}
}

// injectors looks for others who put devices into containers.
func (d *doctor) injectors(s *cdiregistry.Snapshot) {
	names, _ := d.host.ReadDir(d.pluginDir, 1000)
	slices.Sort(names)
	for _, name := range names {
		at := path.Join(d.pluginDir, name)
		switch {
		case strings.Contains(name, "device-injector"):
			d.say("injectors", severityWarning, "remove it, and ask with devices.jackfield.dev", "the NRI plugin %s gives a pod any device that its annotation names, past the policy", at)
		case strings.Contains(name, "hook-injector") && len(d.cfg.Hooks.Dirs) > 0:
			d.say("injectors", severityWarning, "keep one of the two", "the NRI plugin %s and hooks.dirs both inject the hooks of hooks.d directories", at)
		case strings.Contains(name, "jackfield"):
			d.say("injectors", severityNote, "", "the runtime starts the plugin %s itself; a second one, by systemd or as a DaemonSet, would conflict with it", at)
		default:
			d.say("injectors", severityNote, "", "there is another NRI plugin, %s: what both give to one container is a conflict that fails it", at)
		}
	}
	for _, f := range s.Files() {
		if strings.HasPrefix(path.Base(f.Path), "sriov-dp-") {
			d.say("injectors", severityWarning, "turn its CDI mode off: Jackfield delivers the devices of every pool", "the SR-IOV network device plugin is in CDI mode (%s): containers that use several pools lose device nodes", f.Path)
			break
		}
	}
}

func (d *doctor) kubelet() {
	socket := d.cfg.Kubelet.PodResourcesSocket
	st, err := d.host.Stat(socket)
	switch {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK:
		d.ok("kubelet", "the Pod Resources socket is %s", socket)
	case err == nil:
		d.say("kubelet", severityError, "", "%s is a %s, not a socket", socket, hostfs.TypeName(st.Mode))
	case d.cfg.Kubelet.Required:
		d.say("kubelet", severityError, "start the kubelet, and mount the socket's directory into a DaemonSet; or set kubelet.required to false", "the Pod Resources socket cannot be had (%v), and kubelet.required is true: no container gets a PCI or vDPA device", err)
	default:
		d.say("kubelet", severityNote, "on a Kubernetes node, mount the socket's directory into a DaemonSet and set kubelet.required", "there is no Pod Resources socket %s: a container's environment says which devices are its own", socket)
	}
}
