// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// record tells what one ADD makes. It is written before any of it, and removed
// after all of it.
type record struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`

	Chained   bool   `json:"chained,omitempty"`
	SocketDir string `json:"socketDir,omitempty"` // host path, with Directory
	Directory string `json:"directory,omitempty"` // the attachment's, below SocketDir
	// ClaimsDir has the claim of the directory, whose canonical path is Claimed. Records
	// of earlier versions have neither.
	ClaimsDir string `json:"claimsDir,omitempty"`
	Claimed   string `json:"claimed,omitempty"`
	InfoDir   string `json:"deviceInfoDir"`  // host path
	InfoFile  string `json:"deviceInfoFile"` // name in InfoDir
	// InfoKept says that the file was there before, being a copy of the device
	// plugin's: who made it removes it.
	InfoKept bool `json:"deviceInfoKept,omitempty"`
	// Info is the device-info as ADD decided it, without notes.
	Info *deviceinfo.Info `json:"deviceInfo"`
}

const (
	maxRecord  = 256 << 10
	maxRecords = 1 << 16
	recordSep  = "@" // neither names of networks nor IDs of containers have it
	newSuffix  = ".new"
)

// recordName is the name of a record: <network>@<containerID>@<ifName>.
func recordName(network, containerID, ifName string) string {
	return network + recordSep + containerID + recordSep + ifName
}

// splitRecordName undoes recordName.
func splitRecordName(name string) (network, containerID, ifName string, ok bool) {
	parts := strings.SplitN(name, recordSep, 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" || name[0] == '.' {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// store is the directory of the records.
type store struct {
	dir string
	f   *os.File
}

// openStore opens the directory, and makes it when it is missing.
func openStore(host hostfs.Root, dir string) (*store, error) {
	f, err := openDir(host, "stateDir", dir, 0o700)
	if err != nil {
		return nil, err
	}
	return &store{dir, f}, nil
}

// findStore opens the directory; nil when it is missing, and with it all records.
func findStore(host hostfs.Root, dir string) (*store, error) {
	if _, err := host.Stat(dir); errdefs.IsNotFound(err) {
		return nil, nil
	}
	return openStore(host, dir)
}

func (s *store) Close() error { return s.f.Close() }

func (s *store) fd() int { return int(s.f.Fd()) }

func (s *store) failed(verb, name string, err error) error {
	return fail(codeIO, "I/O failure: stateDir", "%s record %q: %v", verb, path.Join(s.dir, name), err)
}

// names lists the records, sorted.
func (s *store) names() ([]string, error) {
	return s.list(func(n string) string { return n })
}

// leftovers lists the records of which only a part was written, sorted.
func (s *store) leftovers() ([]string, error) {
	return s.list(func(n string) string {
		name, ok := strings.CutSuffix(strings.TrimPrefix(n, "."), newSuffix)
		if !ok || tmpName(name) != n {
			return ""
		}
		return name
	})
}

// list gives the names of records that of makes of the names in the directory, sorted.
func (s *store) list(of func(name string) string) ([]string, error) {
	if _, err := s.f.Seek(0, 0); err != nil {
		return nil, s.failed("list", "", err)
	}
	var list []string
	for {
		names, err := s.f.Readdirnames(1024)
		for _, n := range names {
			if name := of(n); isRecordName(name) {
				list = append(list, name)
			}
		}
		if len(list) > maxRecords {
			return nil, s.failed("list", "", fmt.Errorf("more than %d: %w", maxRecords, errdefs.ErrResourceExhausted))
		}
		if len(names) == 0 {
			slices.Sort(list)
			return list, nil
		}
		if err != nil {
			return nil, s.failed("list", "", err)
		}
	}
}

func isRecordName(name string) bool {
	_, _, _, ok := splitRecordName(name)
	return ok
}

// create writes the record of an attachment that has none. A second one for the
// same interface of the container, in whatever network, is refused.
func (s *store) create(r *record) error {
	names, err := s.names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if network, id, ifName, _ := splitRecordName(n); id == r.ContainerID && ifName == r.IfName {
			return fail(codeExists, "interface "+ifName+" of the container exists already",
				"container %q has it in network %q: DEL comes first", id, network)
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := recordName(r.Network, r.ContainerID, r.IfName)
	tmp := tmpName(name)
	if len(tmp) > 255 {
		return fail(codeConfig, "invalid network configuration: name", "the names of network and container are too long together: %d bytes, at most %d",
			len(r.Network)+len(r.ContainerID), 255-len(tmp)+len(r.Network)+len(r.ContainerID))
	}
	err = s.write(tmp, data)
	if err == nil {
		// A link, unlike a rename, does not replace the record of somebody faster.
		err = errors.Join(unix.Linkat(s.fd(), tmp, s.fd(), name, 0), unix.Unlinkat(s.fd(), tmp, 0))
	}
	if errors.Is(err, unix.EEXIST) {
		return fail(codeExists, "the attachment exists already", "another ADD of the same interface is under way, or was killed: DEL comes first")
	}
	if err != nil {
		return s.failed("write", name, err)
	}
	if err := hostfs.SyncDir(s.fd()); err != nil {
		return s.failed("write", name, err)
	}
	return nil
}

// tmpName is where a record is written; it is not the name of one.
func tmpName(name string) string { return "." + name + newSuffix }

// write writes a file that is not there yet: one that is, is somebody else's at work.
func (s *store) write(name string, data []byte) error {
	fd, err := unix.Openat(s.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, unix.Unlinkat(s.fd(), name, 0))
	}
	return err
}

// read gives the record of an attachment; nil when there is none. One that does not
// tell what an ADD made is a [brokenRecord].
func (s *store) read(name string) (*record, error) {
	fd, err := hostfs.OpenatBeneath(s.fd(), name, unix.O_RDONLY|unix.O_NOCTTY)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, s.failed("read", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	data, err := hostfs.ReadRegular(f, maxRecord)
	var r *record
	if err == nil {
		r, err = parseRecord(name, data)
	}
	if errdefs.IsInvalidArgument(err) {
		return nil, &brokenRecord{s.failed("read", name, err)}
	}
	if err != nil {
		return nil, s.failed("read", name, err)
	}
	return r, nil
}

// parseRecord reads a record of that name. What no ADD wrote is
// errdefs.ErrInvalidArgument.
func parseRecord(name string, data []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", jsonProblem(data, err), errdefs.ErrInvalidArgument)
	}
	if of := recordName(r.Network, r.ContainerID, r.IfName); of != name {
		return nil, fmt.Errorf("it is the record of %q: %w", short(of), errdefs.ErrInvalidArgument)
	}
	if r.Info == nil {
		return nil, fmt.Errorf("deviceInfo: missing: %w", errdefs.ErrInvalidArgument)
	}
	for _, f := range []struct {
		key, value string
		check      func(string) error
		optional   bool
	}{
		{"deviceInfoDir", r.InfoDir, hostfs.CheckPath, false},
		{"deviceInfoFile", r.InfoFile, deviceinfo.CheckFileName, false},
		{"socketDir", r.SocketDir, hostfs.CheckPath, r.Directory == ""},
		{"directory", r.Directory, deviceinfo.CheckFileName, true},
		{"claimsDir", r.ClaimsDir, hostfs.CheckPath, r.Claimed == ""},
		{"claimed", r.Claimed, hostfs.CheckPath, true},
	} {
		if f.optional && f.value == "" {
			continue
		}
		if f.check(f.value) != nil {
			return nil, fmt.Errorf("%s: found %q: %w", f.key, short(f.value), errdefs.ErrInvalidArgument)
		}
	}
	return r, nil
}

// remove removes a record, and what a killed ADD left of writing it.
func (s *store) remove(name string) error {
	for _, n := range []string{tmpName(name), name} {
		if err := unix.Unlinkat(s.fd(), n, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return s.failed("remove", n, err)
		}
	}
	return nil
}
