// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/cnirecord"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// temporaryAge is the age at which temporary files in the device-info directory are removed. Writers take
// milliseconds, so an older file is from a writer that was killed.
const temporaryAge = 10 * time.Second

// Remove removes whatever exists of the attachment, and its addresses. It needs neither the network namespace nor
// the device.
func Remove(ctx context.Context, host *Host, attachment *Attachment) error {
	j := &job{Attachment: attachment, Host: host, ctx: ctx}
	st, err := j.findRecords()
	if err != nil {
		return JoinErrors(err, j.releaseAddresses(j.Key))
	}
	if st == nil {
		return JoinErrors(j.releaseAddresses(j.Key), j.removeTemporary(j.InfoDir))
	}
	defer st.Close()
	err = j.removeRecorded(st, j.Key)
	if err != nil {
		err = JoinErrors(err, j.markLeftover(st))
	}
	return JoinErrors(err, j.removeTemporary(j.InfoDir))
}

// markLeftover marks the record of an attachment that could not be removed. The CNI plugin needs no mark: its
// runtime runs DEL again, and GC.
func (j *job) markLeftover(st *cnirecord.Store) error {
	if j.Adapter == "" {
		return nil
	}
	r, err := st.Read(j.Key)
	if err != nil || r == nil || r.Leftover {
		return nil // an unreadable record has been reported
	}
	r.Leftover = true
	return j.recordError(st.Update(r))
}

// RemoveLeftovers removes what the adapter recorded of the attachment's interface, in any network. It also tries to
// remove other attachments whose Remove has failed, and reports on Log what it cannot remove.
func RemoveLeftovers(ctx context.Context, host *Host, attachment *Attachment) error {
	j := &job{Attachment: attachment, Host: host, ctx: ctx}
	st, err := j.findRecords()
	if st == nil || err != nil {
		return err
	}
	defer st.Close()
	keys, err := st.Keys()
	if err != nil {
		return j.recordError(err)
	}
	answers := true // until a leftover shows that a vswitch does not
	for _, key := range keys {
		own := key.ContainerID == j.ContainerID && key.Interface == j.Interface
		r, err := st.Read(key)
		if err != nil || r == nil || r.Adapter != j.Adapter || !own && !(r.Leftover && answers) {
			continue
		}
		err = j.removeRecorded(st, key)
		switch {
		case err != nil && own:
			return err
		case err != nil:
			answers = false
			fmt.Fprintf(j.Log, "%s: interface %s of container %s in network %s is left over: %v\n", j.Program, key.Interface, key.ContainerID, key.Network, err)
		}
	}
	return nil
}

// removeRecorded removes an attachment. A missing record is no error: nothing exists of the attachment but addresses.
func (j *job) removeRecorded(st *cnirecord.Store, key cnirecord.Key) error {
	release := func() error { return j.releaseAddresses(key) }
	r, err := st.Read(key)
	switch {
	case errdefs.IsInvalidArgument(err):
		return j.removeUnrecorded(st, key, err)
	case err != nil:
		return JoinErrors(release(), j.recordError(err))
	case r == nil:
		r = &cnirecord.Record{Key: key, InfoKept: true}
	}
	return j.removeAll(st, r, release)
}

// removeAll removes what an Add has created. The port is removed first, and while that fails, everything else stays. The
// record is removed last: while the addresses or something else is left, it stays, so that the next Remove or
// CollectGarbage tries again.
func (j *job) removeAll(st *cnirecord.Store, r *cnirecord.Record, release func() error) error {
	ctx, cancel := j.limitSwitch()
	defer cancel()
	unlock, err := j.lockPort(ctx, st, r)
	if err != nil {
		return err
	}
	defer unlock()
	if err := j.removePort(ctx, r); err != nil {
		return err
	}
	j.reportStep("port removed")
	if err := JoinErrors(release(), j.removeAttachment(r)); err != nil {
		return err
	}
	j.reportStep("removed")
	return j.recordError(st.Remove(r.Key))
}

// removeAttachment removes what an Add created. Parts may be gone already.
func (j *job) removeAttachment(r *cnirecord.Record) error {
	var errs []error
	if !r.InfoKept {
		errs = append(errs, infoError(deviceinfo.CNIDir{Root: j.Root, Dir: r.InfoDir}.Remove(r.InfoFile)))
	}
	j.reportStep("device-info removed")
	errs = append(errs, j.removeClaimedDir(r))
	return JoinErrors(errs...)
}

func (j *job) removeTemporary(dir string) error {
	return infoError(deviceinfo.RemoveTemporary(j.Root, dir, temporaryAge))
}
