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

// removeRecorded removes an attachment, and its record last. A missing record is no error: nothing exists of the
// attachment but addresses. The port is removed first, and while that fails, everything else stays. While the
// addresses are not released, the record stays, so that the next Remove or CollectGarbage tries again.
func (j *job) removeRecorded(st *cnirecord.Store, key cnirecord.Key) error {
	r, err := st.Read(key)
	broken := errdefs.IsInvalidArgument(err)
	switch {
	case broken:
		if err := j.removeUnrecordedPort(key); err != nil {
			return err
		}
	case err == nil && r != nil:
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
	}
	j.reportStep("port removed")
	leased := j.releaseAddresses(key)
	switch {
	case broken:
		err = j.removeUnrecorded(key, err)
	case err != nil:
		err = j.recordError(err)
	case r != nil:
		err = j.removeAttachment(r)
	}
	if err != nil || leased != nil {
		return JoinErrors(leased, err)
	}
	j.reportStep("removed")
	return j.recordError(st.Remove(key))
}

// removeAttachment removes what an Add created. Parts may be gone already.
func (j *job) removeAttachment(r *cnirecord.Record) error {
	var errs []error
	if !r.InfoKept {
		err := deviceinfo.CNIDir{Root: j.Root, Dir: r.InfoDir}.Remove(r.InfoFile)
		if err != nil {
			err = Fail(codeIO, "I/O failure: device-info", "%v", err)
		}
		errs = append(errs, err)
	}
	j.reportStep("device-info removed")
	errs = append(errs, j.removeClaimedDir(r))
	return JoinErrors(errs...)
}

func (j *job) removeTemporary(dir string) error {
	if err := deviceinfo.RemoveTemporary(j.Root, dir, temporaryAge); err != nil {
		return Fail(codeIO, "I/O failure: device-info", "%v", err)
	}
	return nil
}
