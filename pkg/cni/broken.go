// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// maxInfoFiles bounds a look for the device-info files of an attachment.
const maxInfoFiles = 1 << 16

// brokenRecord is the error of a record that does not tell what an ADD made: a disk
// lost it, or somebody else wrote it. ADD writes it to the disk before it gets its
// name, so that neither a kill nor a power cut makes one.
type brokenRecord struct{ err error }

func (b *brokenRecord) Error() string { return b.err.Error() }

func (b *brokenRecord) Unwrap() error { return b.err }

// removeUnrecorded removes what can be found of an attachment without its record,
// for a DEL is to succeed (§2, DEL) and not to hold the pod's end for good. Nothing
// that the broken record says is used: the names of the directory and of the
// device-info file have the attachment's own in them, and a file has to say that
// this plugin wrote it for this network. What was done is told on standard error,
// which the runtime logs.
func (c *call) removeUnrecorded(name string, broken *brokenRecord) error {
	network, id, ifName, _ := splitRecordName(name)
	fmt.Fprintf(c.Stderr, "jackfield-cni: %v; removing it, and what is found by the attachment's names\n", asError(broken))
	dir := attachmentDir(network, id, ifName)
	errs := []error{c.removeUnrecordedDir(id, dir)}
	files, err := c.ownInfoFiles(network, id, ifName)
	errs = append(errs, err)
	for _, file := range files {
		fmt.Fprintf(c.Stderr, "jackfield-cni: removing device-info file %q\n", path.Join(c.conf.infoDir, file))
		if err := (deviceinfo.CNIDir{Root: c.Host, Dir: c.conf.infoDir}).Remove(file); err != nil {
			errs = append(errs, fail(codeIO, "I/O failure: device-info", "%v", err))
		}
	}
	return joinErrors(errs...)
}

// removeUnrecordedDir removes an attachment's directory: the one that its claim names, or,
// where an earlier version claimed none, the one that has the attachment's name.
func (c *call) removeUnrecordedDir(containerID, name string) error {
	r := record{ContainerID: containerID, SocketDir: c.conf.socketDir, Directory: name, ClaimsDir: c.conf.claimsDir, Claimed: c.claimedPath(name)}
	claim, err := claims.At(c.Host, r.ClaimsDir).Directory(r.Claimed)
	if err != nil {
		return fail(codeIO, "I/O failure: claimsDir", "%v", err)
	}
	if len(claim.Holders) == 0 {
		r.Claimed = ""
	}
	return c.removeClaimedDir(&r)
}

// ownInfoFiles are the names of an attachment's device-info files that this plugin
// wrote: of that which the runtime names, and of those that are named as Multus does.
func (c *call) ownInfoFiles(network, id, ifName string) ([]string, error) {
	names, err := c.Host.ReadDir(c.conf.infoDir, maxInfoFiles)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fail(codeIO, "I/O failure: device-info", "%v", err)
	}
	named := ""
	if id == c.ContainerID && ifName == c.IfName {
		named = path.Base(c.conf.runtime.infoFile)
	}
	dir := deviceinfo.CNIDir{Root: c.Host, Dir: c.conf.infoDir}
	var own []string
	for _, name := range names {
		if _, of, ok := deviceinfo.MatchCNIFileName(name, id); name != named && (!ok || of != ifName) {
			continue
		}
		file, err := dir.File(path.Join(c.conf.infoDir, name))
		if err != nil {
			continue
		}
		// What cannot be read was not written by this plugin, which replaces files whole.
		if info, err := file.Read(); err == nil && notedFor(info) == network {
			own = append(own, name)
		}
	}
	return own, nil
}
