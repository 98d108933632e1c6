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
	m, err := t.newRemoval()
	defer m.close()
	if m.st == nil {
		if err == nil {
			m.removeUnrecordedPort(ctx, t.Key)
		}
		return JoinErrors(err, m.releaseAddresses(t.Key, nil), m.removeDamagedInfo(t.Key), m.removeTemporary())
	}
	err = m.removeRecorded(ctx, t.Key)
	if err != nil {
		err = JoinErrors(err, m.markLeftover())
	}
	return JoinErrors(err, m.removeTemporary())
}

// removal removes attachments by their records, and the remains of those without a record.
type removal struct {
	*Attachment
	st *record.Store // nil if there are no records
}

// newRemoval opens the directory of records. The removal can also be used with the error.
func (t *Attachment) newRemoval() (*removal, error) {
	st, err := t.findRecords()
	return &removal{t, st}, err
}

func (m *removal) close() {
	if m.st != nil {
		m.st.Close()
	}
}

// markLeftover marks the record of an attachment that could not be removed. The CNI plugin needs no
// mark, because its runtime repeats DEL and runs GC.
func (m *removal) markLeftover() error {
	if m.Adapter == "" {
		return nil
	}
	r, err := m.st.Read(m.Key)
	if err != nil || r == nil || r.Leftover {
		return nil // an unreadable record has been reported
	}
	r.Leftover = true
	return recordError(m.Interface, m.st.Update(r))
}

// RemoveLeftovers removes the adapter's recorded attachments of this interface, in any network. It
// also retries other attachments whose Remove has failed, and logs the failures of those.
func (t *Attachment) RemoveLeftovers(ctx context.Context) error {
	m, err := t.newRemoval()
	defer m.close()
	if m.st == nil || err != nil {
		return err
	}
	keys, err := m.st.Keys()
	if err != nil {
		return recordError(t.Interface, err)
	}
	isResponding := true // until the removal of a leftover fails
	for _, key := range keys {
		own := key.ContainerID == t.ContainerID && key.Interface == t.Interface
		r, err := m.st.Read(key)
		if err != nil || r == nil || r.Adapter != t.Adapter || !own && !(r.Leftover && isResponding) {
			continue
		}
		err = m.removeRecorded(ctx, key)
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
	m, err := t.newRemoval()
	defer m.close()
	if err == nil {
		err = m.collectPorts(ctx, nil)
	}
	if err != nil {
		fmt.Fprintf(t.Log, "%s: cannot remove the ports of removed containers: %v\n", t.Program, err)
	}
}

// removeRecorded removes an attachment by its record. Without a record, only addresses, and after a
// lost record a port or a damaged device-info file, can exist.
func (m *removal) removeRecorded(ctx context.Context, key record.Key) error {
	r, err := m.readRecord(m.st, key)
	switch {
	case errdefs.IsInvalidArgument(err):
		return m.removeUnrecorded(ctx, key, err)
	case err != nil:
		return JoinErrors(m.releaseUnknownAddresses(key), recordError(m.Interface, err))
	case r == nil:
		m.removeUnrecordedPort(ctx, key)
		r = &record.Record{Key: key, InfoKept: true}
		return m.removeAll(ctx, r, func() error {
			return JoinErrors(m.releaseAddresses(key, nil), m.removeDamagedInfo(key))
		})
	}
	return m.removeAll(ctx, r, func() error { return m.releaseAddresses(key, r) })
}

// removeAll removes everything that an Add has created. It removes the port first, and keeps
// everything else while that fails. It removes the record last, so that the next Remove or
// CollectGarbage retries after a failure.
func (m *removal) removeAll(ctx context.Context, r *record.Record, release func() error) error {
	ctx, cancel := limitSwitch(ctx, m.Timeout)
	defer cancel()
	unlock, err := lockPort(ctx, m.st, r)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.removePort(ctx, r); err != nil {
		return err
	}
	m.Reached.report("port removed")
	if err := JoinErrors(release(), m.removeAttachment(r)); err != nil {
		return err
	}
	m.Reached.report("removed")
	return recordError(m.Interface, m.st.Remove(r.Key))
}

// removeAttachment removes the device-info file and the directory of a record. Missing parts are no
// error.
func (m *removal) removeAttachment(r *record.Record) error {
	var err error
	if !r.InfoKept {
		if err = checkInfoDir(m.Root, r.InfoDir); err == nil {
			err = ioError("device-info", deviceinfo.CNIDir{Root: m.Root.Dir(), Dir: r.InfoDir}.Remove(r.InfoFile))
		}
	}
	m.Reached.report("device-info removed")
	return JoinErrors(err, m.removeClaimedDir(r))
}

// removeTemporary removes the temporary files of killed writers in the device-info directory.
func (m *removal) removeTemporary() error {
	if checkInfoDir(m.Root, m.InfoDir) != nil {
		return nil // no Add has written there
	}
	names, err := m.Root.ReadDir(m.InfoDir, maxInfoNames)
	errs := []error{hostfs.IgnoreNotFound(err)}
	for _, name := range slices.DeleteFunc(names, func(name string) bool { return !hostfs.IsTemporary(name) }) {
		file := path.Join(m.InfoDir, name)
		if st, err := m.Root.Lstat(file); err == nil && time.Since(time.Unix(st.Mtim.Unix())) > temporaryAge {
			errs = append(errs, m.Root.Remove(file))
		}
	}
	return ioError("device-info", errors.Join(errs...))
}

// CollectGarbage removes the attachments of the network that are not in valid. After a failure it
// continues with the next attachment.
func (t *Attachment) CollectGarbage(ctx context.Context, valid map[record.Key]bool) error {
	m, err := t.newRemoval()
	defer m.close()
	if err != nil {
		return JoinErrors(err, m.removeTemporary())
	}
	if m.st == nil {
		return JoinErrors(m.collectPorts(ctx, valid), m.removeTemporary())
	}
	keys, err := m.st.Keys()
	unfinished, err2 := m.st.UnfinishedKeys()
	errs := []error{recordError(t.Interface, err), recordError(t.Interface, err2)}
	for _, key := range append(keys, unfinished...) {
		if key.Network != t.Network || valid[key] {
			continue
		}
		if r, err := m.st.Read(key); err == nil && r != nil && r.Adapter != t.Adapter {
			continue // belongs to another runtime's network with the same name
		}
		errs = append(errs, m.removeRecorded(ctx, key))
	}
	errs = append(errs, m.collectPorts(ctx, valid), m.releaseUnrecorded(), m.removeTemporary())
	return JoinErrors(errs...)
}

// releaseUnrecorded removes the claims of containers without any record, in all networks, because
// their records were lost. An Add writes its record before it claims a directory, so the records
// are read while the claims are locked.
func (m *removal) releaseUnrecorded() error {
	var recorded []string
	readKeys := sync.OnceValue(func() error {
		keys, err := m.st.Keys()
		for _, key := range keys {
			recorded = append(recorded, key.ContainerID)
		}
		return recordError(m.Interface, err)
	})
	err := sockdir.New(m.Root, m.ClaimsDir).Release(func(h sockdir.Holder) bool {
		return h == m.holder(h.Sandbox) && readKeys() == nil && !slices.Contains(recorded, h.Sandbox)
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
func (m *removal) removeUnrecorded(ctx context.Context, key record.Key, broken error) error {
	fmt.Fprintf(m.Log, "%s: %v; removing the record and everything with the attachment's names\n", m.Program,
		recordError(m.Interface, broken))
	name := DirName(key)
	r := &record.Record{Key: key, InfoKept: true, SocketDir: m.SocketDir, Directory: name, ClaimsDir: m.ClaimsDir,
		Claimed: claimedPath(m.Root, m.SocketDir, name)}
	if m.Port.Vswitch != "" {
		owner := portOwner(key)
		r.Switch, r.ConfigFile, r.Port = m.Port.Vswitch, m.ConfigFile, &vswitch.Port{Name: vswitch.PortName(owner),
			Owner: owner}
	}
	return m.removeAll(ctx, r, func() error {
		return JoinErrors(m.releaseUnknownAddresses(key), m.removeOwnInfoFiles(key), m.removeDamagedInfo(key))
	})
}

// removeOwnInfoFiles removes the device-info files of an attachment that this plugin wrote.
func (m *removal) removeOwnInfoFiles(key record.Key) error {
	dir := deviceinfo.CNIDir{Root: m.Root.Dir(), Dir: m.InfoDir}
	if checkInfoDir(m.Root, m.InfoDir) != nil {
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
			fmt.Fprintf(m.Log, "%s: removing device-info file %q\n", m.Program, f.File)
			errs = append(errs, ioError("device-info", dir.Remove(file)))
		}
	}
	return JoinErrors(errs...)
}

// removeDamagedInfo removes unreadable device-info files of an attachment without a usable record,
// which would block the next Add: the file that the runtime names, and
// <namespace>-<network>-<container ID>_<interface>. If the network names a file of another
// attachment, the file stays.
func (m *removal) removeDamagedInfo(key record.Key) error {
	dir := deviceinfo.CNIDir{Root: m.Root.Dir(), Dir: m.InfoDir}
	files, err := dir.List()
	if err != nil {
		return nil // removeOwnInfoFiles reports it
	}
	var errs []error
	for _, f := range files {
		file := path.Base(f.File)
		namespace, isOwn := strings.CutSuffix(file, "-"+key.Network+"-"+key.ContainerID+"_"+key.Interface)
		isNamed := key == m.Key && file == path.Base(m.InfoFile) && isInfoFileOf(key, file)
		if errdefs.IsInvalidArgument(f.Err) && (isNamed || isOwn && name.IsLabel(namespace)) {
			fmt.Fprintf(m.Log, "%s: removing unreadable device-info file %q: %v\n", m.Program, f.File, f.Err)
			errs = append(errs, ioError("device-info", dir.Remove(file)))
		}
	}
	return JoinErrors(errs...)
}

// releaseAddresses releases the addresses of an attachment. r is its record, or nil.
func (m *removal) releaseAddresses(key record.Key, r *record.Record) error {
	if m.Release == nil {
		return nil
	}
	if r == nil {
		r = &record.Record{}
	}
	return m.Release(key, r.IPAM, false)
}

// releaseUnknownAddresses releases the addresses of an attachment with an unreadable record.
func (m *removal) releaseUnknownAddresses(key record.Key) error {
	if m.Release == nil {
		return nil
	}
	return m.Release(key, nil, true)
}
