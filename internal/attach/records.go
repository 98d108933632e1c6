// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/cnirecord"
)

// findRecords opens the directory of records. It returns nil if the directory is missing.
func (j *job) findRecords() (*cnirecord.Store, error) {
	st, err := cnirecord.Find(j.Root, j.StateDir)
	return st, j.recordError(err)
}

// findRecord returns a readable record of the network that is wanted, or nil.
func (j *job) findRecord(isWanted func(*cnirecord.Record) bool) (*cnirecord.Record, error) {
	st, err := j.findRecords()
	if st == nil || err != nil {
		return nil, err
	}
	defer st.Close()
	keys, err := st.Keys()
	for _, key := range keys {
		if r, err := st.Read(key); err == nil && r != nil && r.Network == j.Network && isWanted(r) {
			return r, nil
		}
	}
	return nil, j.recordError(err)
}

// createRecord writes the record of an Add.
func (j *job) createRecord(st *cnirecord.Store, r *cnirecord.Record) error {
	err := st.Create(r)
	if errdefs.IsInvalidArgument(err) {
		return Fail(codeConfig, "invalid network configuration: name", "%v", err)
	}
	return j.recordError(err)
}

// recordError returns an error of package cnirecord with its code.
func (j *job) recordError(err error) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsConflict(err):
		return Fail(codeLater, "try again later", "%v", err)
	case errdefs.IsAlreadyExists(err):
		return Fail(CodeExists, "interface "+j.Interface+" of the container already exists", "%v", err)
	}
	return dirError("stateDir", err)
}

// readRecord reads the record of the attachment.
func (j *job) readRecord() (*cnirecord.Record, error) {
	st, err := j.findRecords()
	if err != nil {
		return nil, err
	}
	var r *cnirecord.Record
	if st != nil {
		defer st.Close()
		if r, err = st.Read(j.Key); err != nil {
			return nil, j.recordError(err)
		}
	}
	if r == nil {
		return nil, Changed("its record is gone", "container %q, interface %q of network %q is not recorded in %q", j.ContainerID, j.Interface, j.Network, j.StateDir)
	}
	return r, nil
}
