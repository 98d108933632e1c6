// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/internal/cnirecord"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/vswitch"
)

// maxInfoFiles bounds the search for device-info files of an attachment.
const maxInfoFiles = 1 << 16

// removeUnrecorded removes what it can find of an attachment without a usable record. Remove must succeed (§2,
// Remove), otherwise the pod never ends. Nothing in the broken record is used. The names of the port, the directory and
// the device-info file contain the attachment's names, and a file must say that this plugin wrote it for
// this network. The runtime logs the messages on standard error.
func (j *job) removeUnrecorded(st *cnirecord.Store, key cnirecord.Key, broken error) error {
	fmt.Fprintf(j.Log, "%s: %v; removing the record and everything with the attachment's names\n", j.Program, j.recordError(broken))
	name := DirName(key)
	r := &cnirecord.Record{Key: key, InfoKept: true, SocketDir: j.SocketDir, Directory: name, ClaimsDir: j.ClaimsDir, Claimed: j.claimedPath(name)}
	claim, err := claims.At(j.Root, r.ClaimsDir).Directory(r.Claimed)
	if err != nil {
		return JoinErrors(j.releaseAddresses(key), Fail(codeIO, "I/O failure: claimsDir", "%v", err))
	}
	if len(claim.Holders) == 0 {
		r.Claimed = "" // an earlier version made no claim
	}
	if j.Port.Vswitch != "" {
		owner := portOwner(key)
		r.Switch, r.ConfigFile, r.Port = j.Port.Vswitch, j.ConfigFile, &vswitch.Port{Name: vswitch.PortName(owner), Owner: owner}
	}
	return j.removeAll(st, r, func() error { return JoinErrors(j.releaseAddresses(key), j.removeOwnInfoFiles(key)) })
}

// removeOwnInfoFiles removes the device-info files of an attachment that this plugin wrote.
func (j *job) removeOwnInfoFiles(key cnirecord.Key) error {
	files, err := j.ownInfoFiles(key)
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		fmt.Fprintf(j.Log, "%s: removing device-info file %q\n", j.Program, path.Join(j.InfoDir, file))
		errs = append(errs, infoError(deviceinfo.CNIDir{Root: j.Root, Dir: j.InfoDir}.Remove(file)))
	}
	return JoinErrors(errs...)
}

// ownInfoFiles returns the names of an attachment's device-info files that this plugin wrote, among the file
// that the runtime names and those named in Multus' way.
func (j *job) ownInfoFiles(key cnirecord.Key) ([]string, error) {
	names, err := j.Root.ReadDir(j.InfoDir, maxInfoFiles)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, infoError(err)
	}
	named := ""
	if key == j.Key {
		named = path.Base(j.InfoFile)
	}
	dir := deviceinfo.CNIDir{Root: j.Root, Dir: j.InfoDir}
	var own []string
	for _, name := range names {
		if _, of, ok := deviceinfo.MatchCNIFileName(name, key.ContainerID); name != named && (!ok || of != key.Interface) {
			continue
		}
		file, err := dir.File(path.Join(j.InfoDir, name))
		if err != nil {
			continue
		}
		// This plugin replaces files atomically, so it did not write an unreadable one.
		if info, err := file.Read(); err == nil && networkName(info) == key.Network {
			own = append(own, name)
		}
	}
	return own, nil
}
