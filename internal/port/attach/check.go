// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"maps"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Check compares the device-info file, the socket directory and the port with the record of Add.
// compare does the adapter's own checks. It receives the device-info of the file and the
// interface's addresses.
func (t *Attachment) Check(ctx context.Context, r *record.Record,
	compare func(info *deviceinfo.Info, ips []string) error) error {
	i := inspection{t}
	info, err := i.checkInfoFile(r)
	if err != nil {
		return err
	}
	if err := i.checkSocketDir(r); err != nil {
		return err
	}
	n, err := attachment.ReadInterfaceInfo(info)
	if err != nil {
		return Changed("device-info file", "%s was changed since ADD", attachment.InterfaceInfoKey)
	}
	if err := compare(info, n.IPs); err != nil {
		return err
	}
	return i.checkRecordedPort(ctx, r)
}

// inspection compares an attachment and its host with the record, or with the needs of an Add. It changes nothing but
// missing directories.
type inspection struct{ *Attachment }

// Changed returns the error for a part of an attachment that differs from what Add created.
func Changed(msg, details string, args ...any) error {
	return Fail(CodeChanged, "the attachment is not as ADD left it: "+msg, details, args...)
}

// checkInfoFile compares the device-info file with the record. Type and device must be equal.
// Another program may have added keys.
func (i *inspection) checkInfoFile(r *record.Record) (*deviceinfo.Info, error) {
	dir := deviceinfo.CNIDir{Root: i.Root.Dir(), Dir: r.InfoDir}
	file := path.Join(r.InfoDir, r.InfoFile)
	info, err := dir.Read(r.InfoFile)
	if err != nil {
		return nil, Changed("device-info file", "%v", err)
	}
	current, recorded := identityFields(info), identityFields(r.Info)
	for _, key := range slices.Sorted(maps.Keys(recorded)) {
		if current[key] != recorded[key] {
			return nil, Changed("device-info file", "%s: %s: invalid value %q: must be %q",
				file, key, current[key], recorded[key])
		}
	}
	return info, nil
}

func (i *inspection) checkSocketDir(r *record.Record) error {
	if r.Directory == "" {
		return nil
	}
	f, err := i.Root.OpenBeneath(r.SocketDir, r.Directory, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return Changed("socket directory", "%v", err)
	}
	return f.Close()
}

// Status checks whether an Add of the attachment's network would find its directories writable and
// its vswitch responding. It returns the path of the node configuration that has the network's
// vswitch, or "" for a network without a vswitch.
func (t *Attachment) Status(ctx context.Context) (configFile string, err error) {
	i := inspection{t}
	_, missing := t.Root.Stat(t.SocketDir)
	errs := []error{i.checkWritable("stateDir", t.StateDir, 0o700)}
	if t.Device.IsSocket() {
		errs = append(errs, i.checkWritable("claimsDir", t.ClaimsDir, 0o700),
			i.checkWritable("socketDir", t.SocketDir, 0o755))
	}
	errs = append(errs, i.checkWritable("deviceInfoDir", t.InfoDir, 0o755))
	if err := JoinErrors(errs...); err != nil {
		e := AsError(err)
		return "", Fail(codeUnavailable, "the plugin is not available", "%s: %s", e.Msg, e.Details)
	}
	if missing != nil && t.Device.IsSocket() {
		if err := i.checkLostSocketDirs(); err != nil {
			return "", err
		}
	}
	return i.checkSwitch(ctx)
}

// checkWritable creates a missing directory, and checks that files can be created in it.
func (i *inspection) checkWritable(key, dir string, perm uint32) error {
	f, err := openDir(i.Root, key, dir, perm)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Faccessat(int(f.Fd()), ".", unix.W_OK|unix.X_OK, 0); err != nil {
		return Fail(codeIO, "I/O failure: "+key, "write to %q: %v", dir, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err == nil &&
		(fs.Blocks > 0 && fs.Bavail == 0 || fs.Files > 0 && fs.Ffree == 0) {
		return Fail(codeIO, "I/O failure: "+key, "%q: %v", dir, unix.ENOSPC)
	}
	return nil
}

// checkLostSocketDirs reports attachments whose socket directories were removed together with
// socketDir (code 51). New attachments will work, but existing containers are cut off.
func (i *inspection) checkLostSocketDirs() error {
	r, err := i.findRecord(func(r *record.Record) bool { return r.SocketDir == i.SocketDir })
	if err != nil || r == nil {
		return err
	}
	return Fail(codeLimited, "the plugin is not available, and existing containers have limited connectivity",
		"socketDir %q is gone, and with it the socket of interface %q of container %q: "+
			"re-create its pod", i.SocketDir, r.Interface, r.ContainerID)
}
