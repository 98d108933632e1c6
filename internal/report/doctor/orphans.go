// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/ipam"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/report/orphans"
)

// fixRemoves is the remedy for leftovers that --fix removes.
const fixRemoves = "`jackfield doctor --fix` removes them"

// checkOrphans reports the leftovers of removed sandboxes. The daemon knows the living ones from the runtime.
func checkOrphans(_ context.Context, n *node) (found findings) {
	before := time.Now().Add(-orphans.DefaultAge)
	if !n.isRegistered() { // which is reported
		return checkAttachments(n, nil, before)
	}
	// Containers of Podman have networks, too, and the runtime does not know them.
	alive, err := record.Living(n.Host, record.DefaultDir)
	if err != nil {
		found.add(Unknown, runAsRoot, "leftovers of removed pods are unknown: %v", err)
		return found
	}
	var uids []string
	listed := []string{}
	for _, sb := range n.daemon.Sandboxes {
		listed = append(listed, sb.ID)
		alive = append(alive, sb.ID)
		if sb.UID != "" {
			uids = append(uids, sb.UID)
		}
	}
	isDeviceInfo := func(name string) bool { return orphans.IsDeviceInfo(name, alive) }
	isRecord := func(name string) bool { return !slices.Contains(alive, name) }
	found = checkAttachments(n, listed, before)
	found.addOldFiles(n.Host, oldFiles{n.cfg.DeviceInfo.CNIDir, "device-info file", before, isDeviceInfo}, Warning,
		fixRemoves)
	found = append(found, checkMultusOrphans(n, alive, before)...)
	found.addOldFiles(n.Host, oldFiles{staging.SandboxesDir(n.cfg.StateDir), "record", before, isRecord}, Warning,
		"restart jackfield-nri: it removes them when the runtime has reported what lives; its log says what keeps them")
	found = append(found, checkTransientOrphans(n, append(uids, alive...), before)...)
	if len(found) == 0 {
		found.addOK("removed pods left nothing behind")
	}
	return found
}

// oldFiles are the files of a directory that are older than a time and belong to removed sandboxes.
type oldFiles struct {
	dir, noun string
	before    time.Time
	isOrphan  func(name string) bool
}

// addOldFiles adds old files, if there are any. With the remedy fixRemoves, doctor can remove them.
func (f *findings) addOldFiles(host hostfs.Root, old oldFiles, severity Severity, remedy string) {
	names, _ := orphans.OldFiles(host, old.dir, old.before, old.isOrphan)
	if len(names) == 0 {
		return
	}
	finding := f.add(severity, remedy, "%s in %s of removed sandboxes", diag.Count(len(names), old.noun), old.dir)
	if remedy == fixRemoves {
		finding.correct = func(context.Context) error { return removeFiles(host, old.dir, names) }
	}
}

// sweepTimeout bounds the work on attachments of removed sandboxes.
const sweepTimeout = 25 * time.Second

// checkAttachments reports attachments of removed sandboxes. Each can have a record, a port, an address, a directory
// with its claim, and a device-info file. listed are the sandboxes that the runtime lists. Without a runtime listed is
// nil, and only leftovers of Podman are found.
func checkAttachments(n *node, listed []string, before time.Time) (found findings) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
	defer cancel()
	s := &attach.Sweeper{Root: n.Host, Config: n.cfg, Log: io.Discard, Program: "jackfield doctor",
		Release: ipam.ReleaseAbandoned(io.Discard)}
	keys, err := s.AbandonedByPodman()
	if err == nil && listed != nil {
		var others []record.Key
		others, err = s.Abandoned(func(id string) bool { return slices.Contains(listed, id) }, before)
		keys = append(keys, others...)
	}
	if err != nil {
		found.add(Unknown, runAsRoot, "attachments of removed sandboxes are unknown: %v", err)
		return found
	}
	if len(keys) > 0 {
		f := found.add(Warning, fixRemoves, "%s of removed sandboxes, such as interface %s of %s in network %s: "+
			"record, port, address, directory and device-info",
			diag.Count(len(keys), "attachment"), keys[0].Interface, diag.Excerpt(keys[0].ContainerID, 12), keys[0].Network)
		f.correct = func(ctx context.Context) error {
			return removeAll(keys, func(k record.Key) error { return s.Remove(ctx, k) })
		}
	}
	if listed != nil {
		return found // jackfield-nri removes ports without a record
	}
	ports, _ := s.UnrecordedPorts(ctx) // the check of the vswitches reports an unreachable one
	if len(ports) > 0 {
		f := found.add(Warning, fixRemoves, "%s without a record, such as port %s of vswitch %s",
			diag.Count(len(ports), "port"), ports[0].Name, ports[0].Switch)
		f.correct = func(ctx context.Context) error {
			return removeAll(ports, func(p attach.UnrecordedPort) error { return p.Remove(ctx) })
		}
	}
	return found
}

// removeAll removes each item, also after an error.
func removeAll[T any](items []T, remove func(T) error) error {
	var errs []error
	for _, item := range items {
		errs = append(errs, remove(item))
	}
	return errors.Join(errs...)
}

// checkMultusOrphans reports Multus' files of removed sandboxes: a file of the sandbox, with its networks, and a result
// of each network. Files of sandboxes are never removed, because Multus needs them, and the results, for a later DEL.
// Without such a file no DEL uses a result.
func checkMultusOrphans(n *node, alive []string, before time.Time) (found findings) {
	dir := n.cfg.Multus.CacheDir
	names, err := n.Host.ReadDir(dir, orphans.MaxNames)
	if err != nil {
		return nil // no Multus, or the check of the configuration reports it
	}
	owed := map[string]bool{}
	for _, name := range names {
		owed[orphans.RuntimeIDIn(name)] = true
	}
	isGone := func(name string) bool {
		id := orphans.RuntimeIDIn(name)
		return id != "" && !slices.Contains(alive, id)
	}
	found.addOldFiles(n.Host, oldFiles{dir, "cache file", before, isGone}, Note,
		"Multus removes them at the DEL of the sandbox; where that never comes, remove those that are older than the node's "+
			"start")
	isUnused := func(name string) bool { return isGone(name) && !owed[orphans.RuntimeIDIn(name)] }
	found.addOldFiles(n.Host, oldFiles{path.Join(dir, "results"), "result", before, isUnused}, Warning, fixRemoves)
	return found
}

// removeFiles removes regular files of a directory. A file that is gone is no error.
func removeFiles(host hostfs.Root, dir string, names []string) error {
	f, err := host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	return removeAll(names, func(name string) error {
		var st unix.Stat_t
		err := unix.Fstatat(int(f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil
		case err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG:
			return fmt.Errorf("%s is a %s", name, hostfs.TypeName(st.Mode))
		case err == nil:
			err = unix.Unlinkat(int(f.Fd()), name, 0)
		}
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	})
}

// checkTransientOrphans reports CDI files that are named by an ID of no living pod. The IDs of
// claims and containers are among them: the daemon does not know which of these live.
func checkTransientOrphans(n *node, owners []string, before time.Time) (found findings) {
	var files []string
	for _, t := range orphans.WithoutOwner(orphans.TransientSpecs(n.snapshot), owners, before) {
		if orphans.IsRuntimeID(t.ID) || name.IsUID(t.ID) {
			files = append(files, t.File.Path)
		}
	}
	if len(files) > 0 {
		found.add(Note, "`jackfield cdi transient --alive FILE` lists those of removed claims and containers, "+
			"by a list of the living ones; with --remove it removes them",
			"%s named by an ID of no living pod, such as %s: owned by claims or containers, or leftovers",
			diag.Count(len(files), "CDI file"), files[0])
	}
	return found
}

// hookTimeout bounds the search for processes that have containers of the OCI hook mounted.
const hookTimeout = 10 * time.Second

// checkHookOrphans reports records of removed containers of the OCI hook. The mount tables of the host's processes show
// the living ones.
func checkHookOrphans(_ context.Context, n *node) (found findings) {
	dir := staging.HookDir(n.cfg.StateDir)
	if _, err := n.Host.Lstat(dir); err != nil {
		return nil
	}
	store, err := staging.Open(n.Host, dir, staging.Options{Owner: staging.HookOwner, Shared: true, NoCreate: true})
	var left []staging.Orphan
	if err == nil {
		left, err = store.Orphans(staging.MinOrphanAge, hookTimeout)
	}
	if err != nil {
		found.add(Warning, runAsRoot, "leftovers of the OCI hook's removed containers are unknown: %v", err)
		return found
	}
	if len(left) == 0 {
		return nil
	}
	f := found.add(Warning, fixRemoves, "%s in %s of removed containers of the OCI hook",
		diag.Count(len(left), "record"), staging.SandboxesDir(dir))
	f.correct = func(context.Context) error {
		removed, err := store.Sweep(staging.MinOrphanAge, hookTimeout)
		if err == nil && removed < len(left) {
			err = fmt.Errorf("%d of %d records are removed", removed, len(left))
		}
		return errors.Join(err, store.UnmountIfEmpty())
	}
	return found
}
