// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"io"
	"time"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/pkg/devices"
)

const (
	// DefaultSocketDir is the first of the node configuration's socket roots.
	DefaultSocketDir = "/var/run/jackfield/sockets"
	// DefaultStateDir holds the records of attachments.
	DefaultStateDir = record.DefaultDir
	// DefaultClaimsDir is in the default stateDir of the node's configuration. The NRI plugin and the OCI
	// hook use the same directory.
	DefaultClaimsDir = "/var/run/jackfield/claims"
)

// Attachment is one attachment of a container to a network, as its network and its runtime describe it, on the host
// where the adapter runs. One process runs one operation on it.
type Attachment struct {
	record.Key

	// Netns is the path of the container's network namespace. Namespace and Pod are empty outside Kubernetes.
	Netns, Namespace, Pod string
	// Adapter is the program that creates the attachment, "" for the CNI plugin.
	Adapter string
	// Chained says that the interface is of an earlier plugin of the network.
	Chained bool

	Device Device
	// DeviceIDs are IDs of the device by the keys that give them.
	DeviceIDs map[string]string
	Port      PortRequest

	// MAC is the hardware address of a socket's interface, "" to leave the choice to the application.
	MAC       string
	Bandwidth map[string]uint64
	Labels    []devices.Label

	// Timeout bounds an Add if Port names a vswitch, and what other operations wait for the vswitch; 0 for
	// DefaultTimeout.
	Timeout time.Duration

	// NodeConfigFile is the node's own configuration, which lists the locations that networks can choose; "" for the
	// default. See NodeConfig.
	NodeConfigFile string
	// ConfigFile is the node's configuration, which is read if Port names a vswitch. Where the default file is missing,
	// the copy that jackfield-nri keeps is read.
	ConfigFile string
	SocketDir  string // has the directories of the attachments
	StateDir   string // has the records
	ClaimsDir  string
	InfoDir    string // has the device-info files
	// InfoFile is the device-info file that the runtime names, "" for the name that Multus would choose.
	InfoFile string
	// SocketDirSize bounds the attachment's directory, 0 for a plain directory.
	SocketDirSize uint64

	// Root is the root of the host.
	Root hostfs.Root
	// Log gets messages that are not errors of the operation, each beginning with Program.
	Log     io.Writer
	Program string
	// Source describes the keys that errors name.
	Source Source
	// IPAM is the IPAM plugin of an Add, nil for none.
	IPAM *record.IPAM
	// Release releases the addresses of an attachment; nil for none. recorded is the IPAM plugin in its record, nil for
	// none. isDamaged says that the record is unreadable, so that it could have one.
	Release func(key record.Key, recorded *record.IPAM, isDamaged bool) error
	// Reached is called at each step; nil for no call. Tests stop the program there.
	Reached func(step string)

	driver     vswitch.Driver // of all vswitches in tests; nil for those of the node's configuration
	loadedFile string         // the node's configuration, once it is loaded
	node       *config.Config // see NodeConfig
	unreached  bool           // this Add could not connect to the vswitch, so it requested no port
}

// Source describes the keys of an adapter's configuration in errors.
type Source interface {
	// Name returns what the adapter's users call a key, such as device.role.
	Name(key string) string
	// Place begins a message about a key, such as "line 2, column 3: ". It may be "".
	Place(key string) string
	// Value returns the key's value as it was written, or "nothing".
	Value(key string) string
}

// Addresses are the addresses of an attachment's interface and what belongs to them.
type Addresses struct {
	IPs      []string // with prefix lengths
	Gateways []string
	DNS      *devices.DNS
}

func (t *Attachment) reportStep(name string) {
	if t.Reached != nil {
		t.Reached(name)
	}
}

// releaseAddresses releases the addresses of an attachment, of which r is the record, or nil.
func (t *Attachment) releaseAddresses(key record.Key, r *record.Record) error {
	if t.Release == nil {
		return nil
	}
	if r == nil {
		r = &record.Record{}
	}
	return t.Release(key, r.IPAM, false)
}

// releaseUnknownAddresses releases the addresses of an attachment with an unreadable record.
func (t *Attachment) releaseUnknownAddresses(key record.Key) error {
	if t.Release == nil {
		return nil
	}
	return t.Release(key, nil, true)
}
