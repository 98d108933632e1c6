// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/report/orphans"
)

// checkOrphans looks for files of sandboxes that are gone. The daemon knows from the runtime which
// live.
func (d *doctor) checkOrphans() {
	d.checkHookOrphans()
	before := time.Now().Add(-orphans.DefaultAge)
	if d.node == nil || !d.node.Registered {
		d.checkAttachments(nil, before)
		return // the check of the plugin reports it
	}
	// Containers of Podman have networks, too, and the runtime does not know them.
	alive, err := record.Living(d.Host, record.DefaultDir)
	if err != nil {
		d.report("orphans", Unknown, runAsRoot, "what is left of pods that are gone is not known: %v", err)
		return
	}
	var uids []string
	listed := []string{}
	for _, sb := range d.node.Sandboxes {
		listed = append(listed, sb.ID)
		alive = append(alive, sb.ID)
		if sb.UID != "" {
			uids = append(uids, sb.UID)
		}
	}
	isDeviceInfo := func(name string) bool { return orphans.IsDeviceInfo(name, alive) }
	isRecord := func(name string) bool { return !slices.Contains(alive, name) }
	found := d.checkAttachments(listed, before)
	found += d.checkFiles(d.cfg.DeviceInfo.CNIDir, "device-info file", Warning, fixRemoves, before, isDeviceInfo)
	found += d.checkMultusOrphans(alive, before)
	found += d.checkFiles(staging.SandboxesDir(d.cfg.StateDir), "record", Warning,
		"restart jackfield-nri: it removes them when the runtime has reported what lives; its log says what keeps them", before, isRecord)
	found += d.checkTransientOrphans(append(uids, alive...), before)
	if found == 0 {
		d.reportOK("orphans", "nothing is left of pods that are gone")
	}
}

// fixRemoves is the remedy for files that --fix removes.
const fixRemoves = "`jackfield doctor --fix` removes them"

// checkFiles reports the orphans among the old files of a directory, and returns how many there are.
// Where the remedy is fixRemoves, and the caller asks for fixes, it removes them.
func (d *doctor) checkFiles(dir, noun string, severity Severity, remedy string, before time.Time, isOrphan func(name string) bool) int {
	names, _ := orphans.OldFiles(d.Host, dir, before, isOrphan)
	if len(names) > 0 {
		f := d.report("orphans", severity, remedy, "%s in %s of sandboxes that are gone", diag.Count(len(names), noun), dir)
		f.Fixed = d.Fix && remedy == fixRemoves && d.removeFiles(dir, names)
	}
	return len(names)
}

// checkMultusOrphans looks for what Multus keeps of sandboxes: a file of the sandbox, with its networks, and a result
// of each network. The files of sandboxes are never removed: Multus needs them, and the results, for the DEL that it
// still owes. Without such a file no DEL uses a result.
func (d *doctor) checkMultusOrphans(alive []string, before time.Time) int {
	dir := d.cfg.Multus.CacheDir
	names, err := d.Host.ReadDir(dir, orphans.MaxNames)
	if err != nil {
		return 0 // no Multus, or the check of the configuration reports it
	}
	owed := map[string]bool{}
	for _, name := range names {
		owed[orphans.RuntimeIDIn(name)] = true
	}
	isGone := func(name string) bool {
		id := orphans.RuntimeIDIn(name)
		return id != "" && !slices.Contains(alive, id)
	}
	found := d.checkFiles(dir, "cache file", Note,
		"Multus removes them at the DEL of the sandbox; where that never comes, remove those that are older than the node's start", before, isGone)
	return found + d.checkFiles(path.Join(dir, "results"), "result", Warning, fixRemoves, before, func(name string) bool {
		return isGone(name) && !owed[orphans.RuntimeIDIn(name)]
	})
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

// checkTransientOrphans reports CDI files that are named by an ID of no living pod. The IDs of
// claims and containers are among them: the daemon does not know which of these live.
func (d *doctor) checkTransientOrphans(owners []string, before time.Time) int {
	var found []string
	for _, t := range orphans.WithoutOwner(orphans.TransientSpecs(d.snapshot), owners, before) {
		if orphans.IsRuntimeID(t.ID) || name.IsUID(t.ID) {
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
	f := d.report("orphans", Warning, fixRemoves, "%s in %s of the OCI hook's containers that are gone",
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
