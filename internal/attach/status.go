// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/cnirecord"
)

// Status checks whether an Add of the attachment's network could create what it has to. It returns the file of the
// node's configuration that has the network's vswitch, "" for a network without one.
func Status(ctx context.Context, host *Host, network *Attachment) (configFile string, err error) {
	j := &job{Attachment: network, Host: host, ctx: ctx}
	var errs []error
	_, missing := j.Root.Stat(j.SocketDir)
	for _, d := range []struct {
		key, path string
		perm      uint32
		needed    bool
	}{
		{"stateDir", j.StateDir, 0o700, true},
		{"claimsDir", j.ClaimsDir, 0o700, j.Device.IsSocket()},
		{"socketDir", j.SocketDir, 0o755, j.Device.IsSocket()},
		{"deviceInfoDir", j.InfoDir, 0o755, true},
	} {
		if d.needed {
			errs = append(errs, j.checkWritable(d.key, d.path, d.perm))
		}
	}
	if err := JoinErrors(errs...); err != nil {
		return "", Fail(codeUnavailable, "the plugin is not available", "%s: %s", AsError(err).Msg, AsError(err).Details)
	}
	if missing != nil && j.Device.IsSocket() {
		if err := j.checkLostSocketDirs(); err != nil {
			return "", err
		}
	}
	return j.checkSwitch()
}

// checkWritable creates a missing directory, and checks that files can be created in it.
func (j *job) checkWritable(key, dir string, perm uint32) error {
	f, err := openDir(j.Root, key, dir, perm)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Faccessat(int(f.Fd()), ".", unix.W_OK|unix.X_OK, 0); err != nil {
		return Fail(codeIO, "I/O failure: "+key, "write to %q: %v", dir, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err == nil && (fs.Blocks > 0 && fs.Bavail == 0 || fs.Files > 0 && fs.Ffree == 0) {
		return Fail(codeIO, "I/O failure: "+key, "%q: %v", dir, unix.ENOSPC)
	}
	return nil
}

// checkLostSocketDirs reports attachments whose socket directories are gone together with socketDir (code 51).
// New attachments will work, existing ones are cut off.
func (j *job) checkLostSocketDirs() error {
	r, err := j.findRecord(func(r *cnirecord.Record) bool { return r.SocketDir == j.SocketDir })
	if err != nil || r == nil {
		return err
	}
	return Fail(codeLimited, "the plugin is not available, and existing containers have limited connectivity",
		"socketDir %q is gone, and with it the socket of interface %q of container %q: re-create its pod", j.SocketDir, r.Interface, r.ContainerID)
}
