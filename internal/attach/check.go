// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"maps"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/cnirecord"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Recorded returns the record of the attachment.
func Recorded(host *Host, attachment *Attachment) (*cnirecord.Record, error) {
	return (&job{Attachment: attachment, Host: host}).readRecord()
}

// Check checks that the device-info file, the socket directory and the port are as Add recorded them. compare
// checks what the adapter knows of the attachment, with the device-info of the file and the interface's addresses.
func Check(ctx context.Context, host *Host, attachment *Attachment, r *cnirecord.Record, compare func(info *deviceinfo.Info, ips []string) error) error {
	j := &job{Attachment: attachment, Host: host, ctx: ctx}
	info, err := j.checkInfoFile(r)
	if err != nil {
		return err
	}
	if err := j.checkSocketDir(r); err != nil {
		return err
	}
	ips, err := InterfaceIPs(info)
	if err == nil {
		err = compare(info, ips)
	}
	if err != nil {
		return err
	}
	return j.checkRecordedPort(r)
}

// InterfaceIPs returns the interface's addresses in a device-info that Add wrote.
func InterfaceIPs(info *deviceinfo.Info) ([]string, error) {
	var n interfaceInfo
	if raw, ok := info.Extra[ExtraKey]; ok && json.Unmarshal(raw, &n) != nil {
		return nil, Changed("device-info file", "%s differs from what ADD wrote", ExtraKey)
	}
	return n.IPs, nil
}

// Changed returns the error for a part of an attachment that differs from what Add created.
func Changed(msg, details string, args ...any) error {
	return Fail(CodeChanged, "the attachment is not as ADD left it: "+msg, details, args...)
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

// checkInfoFile compares the device-info file with what Add wrote. Type and device must be equal. Other keys may
// have been added.
func (j *job) checkInfoFile(r *cnirecord.Record) (*deviceinfo.Info, error) {
	dir := deviceinfo.CNIDir{Root: j.Root, Dir: r.InfoDir}
	file := path.Join(r.InfoDir, r.InfoFile)
	info, err := dir.Collect(r.InfoFile)
	if err != nil {
		return nil, Changed("device-info file", "%v", err)
	}
	found, want := identityFields(info), identityFields(r.Info)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if found[key] != want[key] {
			return nil, Changed("device-info file", "%s: %s: found %q, want %q", file, key, found[key], want[key])
		}
	}
	return info, nil
}

func (j *job) checkSocketDir(r *cnirecord.Record) error {
	if r.Directory == "" {
		return nil
	}
	dir := path.Join(r.SocketDir, r.Directory)
	f, err := j.Root.OpenBeneath(r.SocketDir, r.Directory, unix.O_PATH)
	if err != nil {
		return Changed("socket directory", "%v", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Changed("socket directory", "%q: %v", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return Changed("socket directory", "%q is a %s", dir, hostfs.TypeName(st.Mode))
	}
	return nil
}
