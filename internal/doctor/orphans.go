// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/cnirecord"
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/orphans"
	"github.com/jackfield/jackfield/pkg/staging"
)

// maxNames bounds the entries of a directory that are read.
const maxNames = 1 << 20

// checkOrphans looks for files of sandboxes that are gone. The daemon knows from the runtime which
// live.
func (d *doctor) checkOrphans() {
	d.checkHookOrphans()
	if d.node == nil || !d.node.Registered {
		return // the check of the plugin reports it
	}
	var alive, owners []string
	for _, sb := range d.node.Sandboxes {
		alive = append(alive, sb.ID)
		owners = append(owners, sb.ID)
		if sb.UID != "" {
			owners = append(owners, sb.UID)
		}
	}
	// Containers of Podman have networks, too, and the runtime does not know them.
	recorded, err := cnirecord.Living(d.Host, cnirecord.DefaultDir)
	if err != nil {
		d.report("orphans", Unknown, runAsRoot, "what is left of pods that are gone is not known: %v", err)
		return
	}
	alive, owners = append(alive, recorded...), append(owners, recorded...)
	before := time.Now().Add(-orphans.DefaultAge)
	found := d.checkDeviceInfoOrphans(alive, before)
	found += d.checkMultusOrphans(alive, before)
	found += d.checkStagingOrphans(alive, before)
	found += d.checkTransientOrphans(owners, before)
	if found == 0 {
		d.reportOK("orphans", "nothing is left of pods that are gone")
	}
}

// namesBefore returns the entries of a directory that were last changed before a time.
func (d *doctor) namesBefore(dir string, before time.Time) []string {
	names, _ := d.Host.ReadDir(dir, maxNames)
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool {
		st, err := d.Host.Lstat(path.Join(dir, name))
		return err != nil || !time.Unix(st.Mtim.Unix()).Before(before)
	})
}

func (d *doctor) checkDeviceInfoOrphans(alive []string, before time.Time) int {
	dir := d.cniDir()
	found, removed := 0, 0
	for _, name := range d.namesBefore(dir.Dir, before) {
		if !orphans.IsDeviceInfo(name, alive) {
			continue
		}
		found++
		if d.Fix && dir.Remove(name) == nil {
			removed++
		}
	}
	if found > 0 {
		f := d.report("orphans", Warning, "`jackfield doctor --fix` removes them", "%s in %s of sandboxes that are gone", diag.Count(found, "device-info file"), dir.Dir)
		f.Fixed = removed == found
	}
	return found
}

// checkMultusOrphans looks for what Multus keeps of sandboxes: a file of the sandbox, with its networks, and a result
// of each network. The files of sandboxes are never removed: Multus needs them, and the results, for the DEL that it
// still owes. Without such a file no DEL uses a result.
func (d *doctor) checkMultusOrphans(alive []string, before time.Time) int {
	dir := d.cfg.Multus.CacheDir
	owed := map[string]bool{}
	names, err := d.Host.ReadDir(dir, maxNames)
	if err != nil {
		return 0 // no Multus, or the check of the configuration reports it
	}
	found := 0
	for _, name := range names {
		owed[orphans.RuntimeIDIn(name)] = true
	}
	for _, name := range d.namesBefore(dir, before) {
		if id := orphans.RuntimeIDIn(name); id != "" && !slices.Contains(alive, id) {
			found++
		}
	}
	if found > 0 {
		d.report("orphans", Note, "Multus removes them at the DEL of the sandbox; where that never comes, remove those that are older than the node's start",
			"%s in %s of sandboxes that are gone", diag.Count(found, "cache file"), dir)
	}
	results := path.Join(dir, "results")
	var left []string
	for _, name := range d.namesBefore(results, before) {
		if id := orphans.RuntimeIDIn(name); id != "" && !slices.Contains(alive, id) && !owed[id] {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		f := d.report("orphans", Warning, "`jackfield doctor --fix` removes them", "%s in %s of sandboxes that are gone", diag.Count(len(left), "result"), results)
		f.Fixed = d.Fix && d.removeFiles(results, left)
	}
	return found + len(left)
}

// removeFiles removes regular files of a directory. It reports whether all are gone.
func (d *doctor) removeFiles(dir string, names []string) bool {
	f, err := d.Host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer f.Close()
	removed := 0
	for _, name := range names {
		var st unix.Stat_t
		err := unix.Fstatat(int(f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			err = unix.Unlinkat(int(f.Fd()), name, 0)
		}
		if errors.Is(err, unix.ENOENT) || err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			removed++
		}
	}
	return removed == len(names)
}

func (d *doctor) checkStagingOrphans(alive []string, before time.Time) int {
	dir := staging.SandboxesDir(d.cfg.StateDir)
	names := slices.DeleteFunc(d.namesBefore(dir, before), func(name string) bool { return slices.Contains(alive, name) })
	if len(names) > 0 {
		d.report("orphans", Warning, "restart jackfield-nri: it removes them when the runtime has reported what lives; its log says what keeps them",
			"%s in %s of sandboxes that are gone", diag.Count(len(names), "record"), dir)
	}
	return len(names)
}

// checkTransientOrphans reports CDI files that are named by an ID of no living pod. The IDs of
// claims and containers are among them: the daemon does not know which of these live.
func (d *doctor) checkTransientOrphans(owners []string, before time.Time) int {
	var found []string
	for _, t := range orphans.WithoutOwner(orphans.TransientSpecs(d.snapshot), owners, before) {
		if orphans.IsRuntimeID(t.ID) || orphans.IsUID(t.ID) {
			found = append(found, t.File.Path)
		}
	}
	if len(found) > 0 {
		d.report("orphans", Note, "`jackfield cdi transient --alive FILE` lists those whose claim or container is gone, by a list of those that live; with --remove it removes them",
			"%s named by an ID of no pod that lives, as %s: owned by claims or containers, or left behind by what is gone", diag.Count(len(found), "CDI file"), found[0])
	}
	return len(found)
}

// hookTimeout bounds the search for processes that have containers of the OCI hook mounted.
const hookTimeout = 10 * time.Second

// checkHookOrphans looks for records of the OCI hook's containers that are gone. The mount tables
// of the host's processes say which live.
func (d *doctor) checkHookOrphans() {
	dir := staging.HookDir(d.cfg.StateDir)
	if _, err := d.Host.Lstat(dir); err != nil {
		return
	}
	store, err := staging.Open(d.Host, dir, staging.Options{Owner: staging.HookOwner, Shared: true, NoCreate: true})
	var left []staging.Orphan
	if err == nil {
		left, err = store.Orphans(staging.MinOrphanAge, hookTimeout)
	}
	if err != nil {
		d.report("orphans", Warning, runAsRoot, "what is left of the OCI hook's containers that are gone is not known: %v", err)
		return
	}
	if len(left) == 0 {
		return
	}
	f := d.report("orphans", Warning, "`jackfield doctor --fix` removes them", "%s in %s of the OCI hook's containers that are gone",
		diag.Count(len(left), "record"), staging.SandboxesDir(dir))
	if !d.Fix {
		return
	}
	n, err := store.Sweep(staging.MinOrphanAge, hookTimeout)
	f.Fixed = n == len(left)
	if err := errors.Join(err, store.UnmountIfEmpty()); err != nil {
		d.report("orphans", Error, "", "%v", err)
	}
}
