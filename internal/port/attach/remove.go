// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// temporaryAge is the age from which temporary files in the device-info directory are removed.
// Writers take milliseconds, so an older file was left by a killed writer.
const temporaryAge = 10 * time.Second

// maxInfoNames bounds the names in the device-info directory.
const maxInfoNames = 1 << 20

// Remove removes everything that exists of the attachment, and releases its addresses. It needs
// neither the network namespace nor the device.
func (t *Attachment) Remove(ctx context.Context) error {
	st, err := t.findRecords()
	if st == nil {
		if err == nil {
			t.removeUnrecordedPort(ctx, nil, t.Key)
		}
		return JoinErrors(err, t.releaseAddresses(t.Key, nil), t.removeDamagedInfo(t.Key), t.removeTemporary())
	}
	defer st.Close()
	err = t.removeRecorded(ctx, st, t.Key)
	if err != nil {
		err = JoinErrors(err, t.markLeftover(st))
	}
	return JoinErrors(err, t.removeTemporary())
}

// markLeftover marks the record of an attachment that could not be removed. The CNI plugin needs no
// mark, because its runtime repeats DEL and runs GC.
func (t *Attachment) markLeftover(st *record.Store) error {
	if t.Adapter == "" {
		return nil
	}
	r, err := st.Read(t.Key)
	if err != nil || r == nil || r.Leftover {
		return nil // an unreadable record has been reported
	}
	r.Leftover = true
	return t.recordError(st.Update(r))
}

// RemoveLeftovers removes the adapter's recorded attachments of this interface, in any network. It
// also retries other attachments whose Remove has failed, and logs the failures of those.
func (t *Attachment) RemoveLeftovers(ctx context.Context) error {
	st, err := t.findRecords()
	if st == nil || err != nil {
		return err
	}
	defer st.Close()
	keys, err := st.Keys()
	if err != nil {
		return t.recordError(err)
	}
	isResponding := true // until the removal of a leftover fails
	for _, key := range keys {
		own := key.ContainerID == t.ContainerID && key.Interface == t.Interface
		r, err := st.Read(key)
		if err != nil || r == nil || r.Adapter != t.Adapter || !own && !(r.Leftover && isResponding) {
			continue
		}
		err = t.removeRecorded(ctx, st, key)
		switch {
		case err != nil && own:
			return err
		case err != nil:
			isResponding = false
			fmt.Fprintf(t.Log, "%s: interface %s of container %s in network %s is left over: %v\n", t.Program,
				key.Interface, key.ContainerID, key.Network, err)
		}
	}
	return nil
}

// RemoveUnrecordedPorts removes the ports of the attachment's network that have no record, and logs
// failures. A host that loses power loses its records, while Open vSwitch keeps its database.
func (t *Attachment) RemoveUnrecordedPorts(ctx context.Context) {
	// with another StateDir, the host's own records are unknown
	if t.Port.Vswitch == "" || t.StateDir != DefaultStateDir {
		return
	}
	st, err := t.findRecords()
	if err == nil {
		err = t.collectPorts(ctx, st, nil)
	}
	if st != nil {
		st.Close()
	}
	if err != nil {
		fmt.Fprintf(t.Log, "%s: cannot remove the ports of removed containers: %v\n", t.Program, err)
	}
}

// removeRecorded removes an attachment by its record. Without a record, only addresses, and after a
// lost record a port or a damaged device-info file, can exist.
func (t *Attachment) removeRecorded(ctx context.Context, st *record.Store, key record.Key) error {
	r, err := t.readRecord(st, key)
	switch {
	case errdefs.IsInvalidArgument(err):
		return t.removeUnrecorded(ctx, st, key, err)
	case err != nil:
		return JoinErrors(t.releaseUnknownAddresses(key), t.recordError(err))
	case r == nil:
		t.removeUnrecordedPort(ctx, st, key)
		r = &record.Record{Key: key, InfoKept: true}
		return t.removeAll(ctx, st, r, func() error {
			return JoinErrors(t.releaseAddresses(key, nil), t.removeDamagedInfo(key))
		})
	}
	return t.removeAll(ctx, st, r, func() error { return t.releaseAddresses(key, r) })
}

// removeAll removes everything that an Add has created. It removes the port first, and keeps
// everything else while that fails. It removes the record last, so that the next Remove or
// CollectGarbage retries after a failure.
func (t *Attachment) removeAll(ctx context.Context, st *record.Store, r *record.Record, release func() error) error {
	ctx, cancel := t.limitSwitch(ctx)
	defer cancel()
	unlock, err := t.lockPort(ctx, st, r)
	if err != nil {
		return err
	}
	defer unlock()
	if err := t.removePort(ctx, r); err != nil {
		return err
	}
	t.reportStep("port removed")
	if err := JoinErrors(release(), t.removeAttachment(r)); err != nil {
		return err
	}
	t.reportStep("removed")
	return t.recordError(st.Remove(r.Key))
}

// removeAttachment removes the device-info file and the directory of a record. Missing parts are no
// error.
func (t *Attachment) removeAttachment(r *record.Record) error {
	var err error
	if !r.InfoKept {
		if err = t.checkInfoDir(r.InfoDir); err == nil {
			err = ioError("device-info", deviceinfo.CNIDir{Root: t.Root.Dir(), Dir: r.InfoDir}.Remove(r.InfoFile))
		}
	}
	t.reportStep("device-info removed")
	return JoinErrors(err, t.removeClaimedDir(r))
}

// removeTemporary removes the temporary files of killed writers in the device-info directory.
func (t *Attachment) removeTemporary() error {
	if t.checkInfoDir(t.InfoDir) != nil {
		return nil // no Add has written there
	}
	names, err := t.Root.ReadDir(t.InfoDir, maxInfoNames)
	errs := []error{hostfs.IgnoreNotFound(err)}
	for _, name := range slices.DeleteFunc(names, func(name string) bool { return !hostfs.IsTemporary(name) }) {
		file := path.Join(t.InfoDir, name)
		if st, err := t.Root.Lstat(file); err == nil && time.Since(time.Unix(st.Mtim.Unix())) > temporaryAge {
			errs = append(errs, t.Root.Remove(file))
		}
	}
	return ioError("device-info", errors.Join(errs...))
}

// CollectGarbage removes the attachments of the network that are not in valid. After a failure it
// continues with the next attachment.
func (t *Attachment) CollectGarbage(ctx context.Context, valid map[record.Key]bool) error {
	st, err := t.findRecords()
	if err != nil {
		return JoinErrors(err, t.removeTemporary())
	}
	if st == nil {
		return JoinErrors(t.collectPorts(ctx, nil, valid), t.removeTemporary())
	}
	defer st.Close()
	keys, err := st.Keys()
	unfinished, err2 := st.UnfinishedKeys()
	errs := []error{t.recordError(err), t.recordError(err2)}
	for _, key := range append(keys, unfinished...) {
		if key.Network != t.Network || valid[key] {
			continue
		}
		if r, err := st.Read(key); err == nil && r != nil && r.Adapter != t.Adapter {
			continue // belongs to another runtime's network with the same name
		}
		errs = append(errs, t.removeRecorded(ctx, st, key))
	}
	errs = append(errs, t.collectPorts(ctx, st, valid), t.releaseUnrecorded(st), t.removeTemporary())
	return JoinErrors(errs...)
}

// releaseUnrecorded removes the claims of containers without any record, in all networks, because
// their records were lost. An Add writes its record before it claims a directory, so the records
// are read while the claims are locked.
func (t *Attachment) releaseUnrecorded(st *record.Store) error {
	var recorded []string
	readKeys := sync.OnceValue(func() error {
		keys, err := st.Keys()
		for _, key := range keys {
			recorded = append(recorded, key.ContainerID)
		}
		return t.recordError(err)
	})
	err := sockdir.New(t.Root, t.ClaimsDir).Release(func(h sockdir.Holder) bool {
		return h == t.holder(h.Sandbox) && readKeys() == nil && !slices.Contains(recorded, h.Sandbox)
	})
	if err != nil {
		return ioError("claimsDir", err)
	}
	return readKeys()
}

// removeUnrecorded removes an attachment whose record is unusable. Remove must succeed (§2,
// Remove), otherwise the pod never terminates. It uses nothing from the broken record: it finds
// port, directory and device-info file by names that contain the attachment's names, and removes
// only device-info files that this plugin wrote for this network. It reports on standard error,
// which the runtime logs.
func (t *Attachment) removeUnrecorded(ctx context.Context, st *record.Store, key record.Key, broken error) error {
	fmt.Fprintf(t.Log, "%s: %v; removing the record and everything with the attachment's names\n", t.Program,
		t.recordError(broken))
	name := DirName(key)
	r := &record.Record{Key: key, InfoKept: true, SocketDir: t.SocketDir, Directory: name, ClaimsDir: t.ClaimsDir,
		Claimed: t.claimedPath(name)}
	if t.Port.Vswitch != "" {
		owner := portOwner(key)
		r.Switch, r.ConfigFile, r.Port = t.Port.Vswitch, t.ConfigFile, &vswitch.Port{Name: vswitch.PortName(owner),
			Owner: owner}
	}
	return t.removeAll(ctx, st, r, func() error {
		return JoinErrors(t.releaseUnknownAddresses(key), t.removeOwnInfoFiles(key), t.removeDamagedInfo(key))
	})
}

// removeOwnInfoFiles removes the device-info files of an attachment that this plugin wrote.
func (t *Attachment) removeOwnInfoFiles(key record.Key) error {
	dir := deviceinfo.CNIDir{Root: t.Root.Dir(), Dir: t.InfoDir}
	if t.checkInfoDir(t.InfoDir) != nil {
		return nil
	}
	files, err := dir.List()
	if err != nil {
		return ioError("device-info", err)
	}
	var errs []error
	for _, f := range files {
		file := path.Base(f.File)
		_, ifName, ok := name.MatchInfoFile(file, key.ContainerID)
		isNamed := ok && ifName == key.Interface
		// This plugin replaces files atomically, so it cannot have written an unreadable one.
		if !isNamed || f.Err != nil {
			continue
		}
		if n, err := attachment.ReadInterfaceInfo(f.Info); err == nil && n.Network == key.Network {
			fmt.Fprintf(t.Log, "%s: removing device-info file %q\n", t.Program, f.File)
			errs = append(errs, ioError("device-info", dir.Remove(file)))
		}
	}
	return JoinErrors(errs...)
}

// removeDamagedInfo removes unreadable device-info files of an attachment without a usable record,
// which would block the next Add: the file that the runtime names, and
// <namespace>-<network>-<container ID>_<interface>. If the network names a file of another
// attachment, the file stays.
func (t *Attachment) removeDamagedInfo(key record.Key) error {
	dir := deviceinfo.CNIDir{Root: t.Root.Dir(), Dir: t.InfoDir}
	files, err := dir.List()
	if err != nil {
		return nil // removeOwnInfoFiles reports it
	}
	var errs []error
	for _, f := range files {
		file := path.Base(f.File)
		namespace, isOwn := strings.CutSuffix(file, "-"+key.Network+"-"+key.ContainerID+"_"+key.Interface)
		isNamed := key == t.Key && file == path.Base(t.InfoFile) && isInfoFileOf(key, file)
		if errdefs.IsInvalidArgument(f.Err) && (isNamed || isOwn && name.IsLabel(namespace)) {
			fmt.Fprintf(t.Log, "%s: removing unreadable device-info file %q: %v\n", t.Program, f.File, f.Err)
			errs = append(errs, ioError("device-info", dir.Remove(file)))
		}
	}
	return JoinErrors(errs...)
}
