// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
)

// StateDirs returns the directories that can hold records of attachments: the default, and the directories in
// cni.stateDirs of the node's configuration. Entries with * are omitted, because they match any number of
// directories. Each directory occurs once.
func StateDirs(cfg *config.Config) []string {
	dirs := []string{DefaultStateDir}
	for _, dir := range cfg.CNI.StateDirs {
		isSame := func(have string) bool { return reserved.WithoutVar(have) == reserved.WithoutVar(dir) }
		if !strings.Contains(dir, "*") && !slices.ContainsFunc(dirs, isSame) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// StateDirOf returns the first directory of [StateDirs] with a record of an attachment, or "".
func StateDirOf(root hostfs.Root, cfg *config.Config, key record.Key) string {
	for _, dir := range StateDirs(cfg) {
		if _, err := root.Lstat(path.Join(dir, key.FileName())); err == nil {
			return dir
		}
	}
	return ""
}

// findRecords opens the directory of records. It returns nil if the directory is missing.
func (t *Attachment) findRecords() (*record.Store, error) {
	st, err := record.Find(t.Root, t.StateDir)
	return st, recordError(t.Interface, err)
}

// findRecord returns the first readable record of the network that matches, or nil.
func (i *inspection) findRecord(matches func(*record.Record) bool) (*record.Record, error) {
	st, err := i.findRecords()
	if st == nil || err != nil {
		return nil, err
	}
	defer st.Close()
	keys, err := st.Keys()
	for _, key := range keys {
		if r, err := st.Read(key); err == nil && r != nil && r.Network == i.Network && matches(r) {
			return r, nil
		}
	}
	return nil, recordError(i.Interface, err)
}

// createRecord writes the record of an Add.
func (a *addition) createRecord() error {
	err := a.st.Create(&a.record)
	if errdefs.IsInvalidArgument(err) {
		return Fail(codeConfig, "invalid network configuration: name", "%v", err)
	}
	return recordError(a.Interface, err)
}

// recordError adds a code to an error of package record.
func recordError(ifName string, err error) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsConflict(err):
		return Fail(codeLater, "try again later", "%v", err)
	case errdefs.IsAlreadyExists(err):
		return Fail(CodeExists, "interface "+ifName+" of the container already exists", "%v", err)
	}
	return dirError("stateDir", err)
}

// ReadRecord returns the record of the attachment.
func (t *Attachment) ReadRecord() (*record.Record, error) {
	st, err := t.findRecords()
	if err != nil {
		return nil, err
	}
	var r *record.Record
	if st != nil {
		defer st.Close()
		if r, err = t.readRecord(st, t.Key); err != nil {
			return nil, recordError(t.Interface, err)
		}
	}
	if r == nil {
		return nil, Changed("its record is gone", "container %q, interface %q of network %q is not recorded in %q",
			t.ContainerID, t.Interface, t.Network, t.StateDir)
	}
	return r, nil
}
