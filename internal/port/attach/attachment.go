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

// Attachment describes one attachment of a container to a network, with the settings of its
// network, its runtime and the host. One process runs one operation on it.
type Attachment struct {
	record.Key

	// Netns is the path of the container's network namespace. Namespace and Pod are empty outside Kubernetes.
	Netns, Namespace, Pod string
	// Adapter is the program that creates the attachment; "" is the CNI plugin.
	Adapter string
	// Chained is set if an earlier plugin of the network created the interface.
	Chained bool

	Device Device
	// DeviceIDs holds the IDs of the device by the configuration keys that set them.
	DeviceIDs map[string]string
	Port      PortRequest

	// MAC is the hardware address of a socket's interface. If it is "", the application chooses.
	MAC       string
	Bandwidth map[string]uint64
	Labels    []devices.Label

	// Timeout bounds an Add with a vswitch, and how long other operations wait for the vswitch.
	// Zero is DefaultTimeout.
	Timeout time.Duration

	// NodeConfigFile is the node's own configuration, which lists the locations that networks can
	// choose. If it is "", the default path is used. See NodeConfig.
	NodeConfigFile string
	// ConfigFile is the node's configuration. It is read only if Port names a vswitch. If the
	// default file is missing, the copy that jackfield-nri keeps is read.
	ConfigFile string
	SocketDir  string // parent of the attachments' socket directories
	StateDir   string // records
	ClaimsDir  string
	InfoDir    string // device-info files
	// InfoFile is the device-info file that the runtime names. If it is "", Multus's naming applies.
	InfoFile string
	// SocketDirSize bounds the attachment's directory. If it is 0, the directory is not bounded.
	SocketDirSize uint64

	// Root is the root of the host.
	Root hostfs.Root
	// Log receives messages that are not errors of the operation, each prefixed with Program.
	Log     io.Writer
	Program string
	// Source describes the keys that errors name.
	Source Source
	// IPAM is the IPAM plugin that an Add runs; nil for none.
	IPAM *record.IPAM
	// Release releases the addresses of an attachment; nil if there are none to release. recorded
	// is the IPAM plugin from the attachment's record, or nil. isDamaged is set if the record is
	// unreadable and could therefore have listed an IPAM plugin.
	Release func(key record.Key, recorded *record.IPAM, isDamaged bool) error
	// Reached is called after each step; nil for no call. Tests stop the program there.
	Reached StepFunc

	driver     vswitch.Driver // replaces every driver in tests
	loadedFile string         // path of the node's configuration, once loaded
	node       *config.Config // see NodeConfig
	unreached  bool           // this Add could not connect to the vswitch, so no port exists
}

// Source names and locates the keys of an adapter's configuration in errors.
type Source interface {
	// Name returns the adapter's own spelling of a key, such as device.role.
	Name(key string) string
	// Place returns the prefix of a message about a key, such as "line 2, column 3: ". It can be
	// "".
	Place(key string) string
	// Value returns the key's value in the spelling of the configuration, or "nothing".
	Value(key string) string
}

// Addresses are the addresses of an attachment's interface, with gateways and DNS settings.
type Addresses struct {
	IPs      []string // with prefix lengths
	Gateways []string
	DNS      *devices.DNS
}

// StepFunc is called after each step of an operation.
type StepFunc func(step string)

func (f StepFunc) report(step string) {
	if f != nil {
		f(step)
	}
}
