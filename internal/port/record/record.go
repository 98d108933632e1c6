// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// DefaultDir is the directory of records if the network configuration has no stateDir. A reboot
// clears it, together with the attachments.
const DefaultDir = "/var/run/jackfield/cni"

// Key identifies an attachment.
type Key struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"` // the ID of the pod's sandbox
	Interface   string `json:"ifname"`
}

// FindNetns returns the identity of the network namespace at a path, or nil if it cannot be
// inspected.
func FindNetns(host hostfs.Root, path string) *hostfs.FileID {
	st, err := host.Stat(path)
	if err != nil {
		return nil
	}
	id := hostfs.StatID(&st)
	return &id
}

// Record describes the objects of one ADD.
type Record struct {
	Key

	// Netns is the path of the container's network namespace at ADD. Namespace and Pod are empty
	// outside Kubernetes.
	Netns string `json:"netns"`
	// NetnsID identifies that network namespace, because names are reused. It is nil if unknown.
	NetnsID *hostfs.FileID `json:"netnsID,omitempty"`

	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`

	// Adapter is the program that created the attachment; "" is the CNI plugin.
	Adapter string `json:"adapter,omitempty"`

	// Leftover is set if the runtime has ended the attachment, but its removal failed.
	Leftover bool `json:"leftover,omitempty"`

	// Chained is set if an earlier plugin of the network created the interface.
	Chained bool `json:"chained,omitempty"`

	SocketDir string `json:"socketDir,omitempty"` // host path, with Directory
	Directory string `json:"directory,omitempty"` // the attachment's directory below SocketDir
	// ClaimsDir holds the claim of the directory, whose canonical path is Claimed.
	ClaimsDir string `json:"claimsDir,omitempty"`
	Claimed   string `json:"claimed,omitempty"`

	InfoDir  string `json:"deviceInfoDir"`  // host path
	InfoFile string `json:"deviceInfoFile"` // name in InfoDir
	// InfoKept is set if the file existed before, as a copy of the device plugin's. Its creator
	// removes it.
	InfoKept bool `json:"deviceInfoKept,omitempty"`
	// Info is the planned device-info, without the interface's information.
	Info *deviceinfo.Info `json:"deviceInfo"`

	// IPAM is the IPAM plugin that allocates the addresses; nil for none.
	IPAM *IPAM `json:"ipam,omitempty"`

	// Switch is the name of the vswitch in ConfigFile, the node's configuration. Port is the
	// requested port. All three are empty for an attachment without a port.
	Switch     string        `json:"vswitch,omitempty"`
	ConfigFile string        `json:"configFile,omitempty"`
	Port       *vswitch.Port `json:"port,omitempty"`
}

// IPAM is one run of an IPAM plugin. It is recorded so that its DEL can release the addresses even
// if the runtime never runs DEL.
type IPAM struct {
	Type string `json:"type"`           // name of the executable
	Path string `json:"path"`           // CNI_PATH
	Args string `json:"args,omitempty"` // CNI_ARGS
	// Config is the network configuration on the plugin's standard input.
	Config json.RawMessage `json:"config"`
}

// MaxIPAMConfig bounds IPAM.Config, which is part of a bounded record.
const MaxIPAMConfig = 128 << 10

// checkIPAM checks that the executable is in a directory of CNI_PATH.
func checkIPAM(i *IPAM) error {
	if i == nil {
		return nil
	}
	if name.CheckFile(i.Type) != nil || i.Path == "" {
		return fmt.Errorf("ipam: invalid plugin %s in %s", diag.Quote(i.Type), diag.Quote(i.Path))
	}
	return nil
}

// separator cannot occur in names of networks and IDs of containers.
const separator = "@"

// FileName returns the name of the record's file: <network>@<containerID>@<interface>.
func (k Key) FileName() string {
	return k.Network + separator + k.ContainerID + separator + k.Interface
}

// parseFileName is the inverse of FileName.
func parseFileName(name string) (key Key, ok bool) {
	parts := strings.SplitN(name, separator, 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" || name[0] == '.' {
		return Key{}, false
	}
	return Key{Network: parts[0], ContainerID: parts[1], Interface: parts[2]}, true
}

// check rejects a record that no ADD can have written to the file of the given name.
func check(file string, r *Record) error {
	if r.FileName() != file {
		return fmt.Errorf("it is the record of %s", diag.Quote(r.FileName()))
	}
	if r.Info == nil {
		return errors.New("deviceInfo: missing")
	}
	for _, f := range []struct {
		key, value string
		check      func(string) error
		optional   bool
	}{
		{"deviceInfoDir", r.InfoDir, hostfs.CheckPath, false},
		{"deviceInfoFile", r.InfoFile, name.CheckFile, false},
		{"socketDir", r.SocketDir, hostfs.CheckPath, r.Directory == ""},
		{"directory", r.Directory, name.CheckFile, true},
		{"claimsDir", r.ClaimsDir, hostfs.CheckPath, r.Claimed == ""},
		{"claimed", r.Claimed, hostfs.CheckPath, true},
		{"configFile", r.ConfigFile, hostfs.CheckPath, true},
	} {
		if f.optional && f.value == "" {
			continue
		}
		if f.check(f.value) != nil {
			return fmt.Errorf("%s: invalid value %s", f.key, diag.Quote(f.value))
		}
	}
	return cmp.Or(checkPort(r), checkIPAM(r.IPAM))
}

// checkPort checks that the port belongs to the attachment, so that a forged record cannot refer to
// another port.
func checkPort(r *Record) error {
	if r.Switch == "" && r.Port == nil {
		return nil
	}
	if r.Switch == "" || r.Port == nil {
		return errors.New("vswitch and port: only one of them is given")
	}
	if o := r.Port.Owner; o.ContainerID != r.ContainerID || o.Interface != r.Interface ||
		r.Port.Name != vswitch.PortName(o) {
		return fmt.Errorf("port: %s of container %s, interface %s: must be the port of this attachment",
			diag.Quote(r.Port.Name), diag.Quote(o.ContainerID), diag.Quote(o.Interface))
	}
	return nil
}

// Select returns the keys of the records in a directory that match, in the order of [Store.Keys].
// matches gets nil for an unreadable record. A missing directory has no records.
func Select(host hostfs.Root, dir string, matches func(Key, *Record) bool) ([]Key, error) {
	st, err := Find(host, dir)
	if st == nil || err != nil {
		return nil, err
	}
	defer st.Close()
	keys, err := st.Keys()
	if err != nil {
		return nil, err
	}
	var matching []Key
	for _, key := range keys {
		r, err := st.Read(key)
		if err == nil && r == nil {
			continue // removed meanwhile
		}
		if matches(key, r) {
			matching = append(matching, key)
		}
	}
	return matching, nil
}

// Living returns the containers with an attachment that its runtime has not ended. They include
// Podman's containers, which the node's container runtime does not report. A container counts as
// living if its record is inconclusive.
func Living(host hostfs.Root, dir string) ([]string, error) {
	living, err := Select(host, dir, func(_ Key, r *Record) bool { return r == nil || r.isLiving(host) })
	var ids []string
	for _, key := range living {
		ids = append(ids, key.ContainerID)
	}
	return ids, err
}

// IsRunningUnlisted reports whether the attachment belongs to a running container that the node's
// container runtime does not report, such as Podman's.
func (r *Record) IsRunningUnlisted(host hostfs.Root) bool {
	if r.Adapter == "" || r.Leftover {
		return false
	}
	return r.StatNetns(host) == nil
}

// StatNetns returns nil if the network namespace of the ADD is still at its path, and
// errdefs.ErrNotFound if it is gone or another network namespace has the path. A container without
// the host's mounts sees a file of a different device at the path. Such a file counts as the
// network namespace of the ADD.
func (r *Record) StatNetns(host hostfs.Root) error {
	st, err := host.Stat(r.Netns)
	id := r.NetnsID
	if err == nil && id != nil && uint64(st.Dev) == id.Device && st.Ino != id.Inode {
		err = errdefs.ErrNotFound
	}
	return err
}

// isLiving reports whether the runtime has not ended the attachment. Podman ends it by a teardown.
// A CNI runtime removes the network namespace.
func (r *Record) isLiving(host hostfs.Root) bool {
	if r.Adapter != "" {
		return !r.Leftover
	}
	return !errdefs.IsNotFound(r.StatNetns(host))
}
