// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/internal/cnirecord"
)

// CollectGarbage removes the attachments of the attachment's network that are not in valid. A failure does not keep
// it from removing others.
func CollectGarbage(ctx context.Context, host *Host, network *Attachment, valid map[cnirecord.Key]bool) error {
	j := &job{Attachment: network, Host: host, ctx: ctx}
	st, err := j.findRecords()
	switch {
	case err != nil:
		return JoinErrors(err, j.removeTemporary(j.InfoDir))
	case st == nil:
		return JoinErrors(j.collectPorts(nil, valid), j.removeTemporary(j.InfoDir))
	}
	defer st.Close()
	keys, err := st.Keys()
	unfinished, err2 := st.UnfinishedKeys()
	errs := []error{j.recordError(err), j.recordError(err2)}
	for _, key := range append(keys, unfinished...) {
		if key.Network != j.Network || valid[key] {
			continue
		}
		if r, err := st.Read(key); err == nil && r != nil && r.Adapter != j.Adapter {
			continue // of another runtime's network with the same name
		}
		errs = append(errs, j.removeRecorded(st, key))
	}
	errs = append(errs, j.collectPorts(st, valid), j.releaseUnrecorded(st))
	errs = append(errs, j.removeTemporary(j.InfoDir))
	return JoinErrors(errs...)
}

// releaseUnrecorded removes the claims of containers without any record, of all networks: the record was
// lost.
func (j *job) releaseUnrecorded(st *cnirecord.Store) error {
	keys, err := st.Keys()
	if err != nil {
		return j.recordError(err)
	}
	recorded := map[string]bool{}
	for _, key := range keys {
		recorded[key.ContainerID] = true
	}
	err = claims.At(j.Root, j.ClaimsDir).Release(func(h claims.Holder) bool {
		return h == j.holder(h.Sandbox) && !recorded[h.Sandbox]
	})
	if err != nil {
		return Fail(codeIO, "I/O failure: claimsDir", "%v", err)
	}
	return nil
}
