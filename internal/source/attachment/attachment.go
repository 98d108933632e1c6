// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// NetworksAnnotation holds the pod's networks (Multi-Network CRD specification). A tenant writes
// it, so only names and their order are used, never paths or devices.
const NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"

// Owner is the container that a PCI or vDPA device is allocated to.
type Owner string

// The owners. Every container of the pod can use the socket of a network, so a socket's owner is
// unknown.
const (
	OwnerUnknown   Owner = "unknown"
	OwnedHere      Owner = "this container"
	OwnedElsewhere Owner = "another container"
)

// Attachment is one network attachment of a pod, or one allocated device without a network. Both
// Info and Err are unset for a network without device-info, and for a claimed device whose driver
// reports neither a PCI address nor a socket.
type Attachment struct {
	Network string // namespace/name if known, otherwise as in the file's name; "" for a device without a network
	// NetworkGuessed is set unless Network is from Multus' record of the sandbox: then the pod's
	// annotation or namespace decided where to split the file's name. A guess is good enough for
	// messages and for choosing a network, but not for policy.
	NetworkGuessed bool
	NetworkGap     string // why Multus' record lacks the network; "" unless NetworkGuessed
	// IfName is the interface in the pod. It is "" for a device without a network, and if only the
	// annotation lists the network.
	IfName string
	Info   *deviceinfo.Info // nil if Err is set
	File   string           // host path of the device-info file; "" without one
	// DeviceID is the device plugin's ID of the device, or "" if unknown.
	DeviceID string
	// Device is set if Owner is OwnedHere. It is the PCI address, or the name of the vDPA device,
	// of DeviceID: DeviceID itself unless the device plugin's file maps it to another name.
	Device    string
	Claimed   *ClaimedDevice // set for a device of a resource claim
	Resource  string         // extended resource of the device; "" if unknown
	Owner     Owner
	OwnerFrom string // source of Owner, see [FromKubelet] and [FromEnvironment]; or ""
	// Announced lists the container paths of the device's nodes in PCIDEVICE_*_INFO, sorted. They
	// are a hint and are never delivered.
	Announced []string
	Notes     []string // remarks for the user
	Err       error    // why the attachment is unusable; a *ConflictError if sources disagree
}

// PolicyNetwork returns the network's name for a policy. For a guessed name it joins namespace and
// name with "-", like the device-info file's name, so that a wrong split cannot match a rule.
func (a *Attachment) PolicyNetwork() string {
	if a.NetworkGuessed {
		return dashed(a.Network)
	}
	return a.Network
}

// Query identifies a sandbox and one of its containers.
type Query struct {
	SandboxID      string
	Namespace, Pod string
	PodUID         string   // "" if unknown
	Container      string   // name in the pod
	Networks       string   // value of NetworksAnnotation
	Env            []string // of the container, NAME=value
	// MetadataFiles are the sources of the container's mounts of device metadata. See
	// [IsMetadataMount].
	MetadataFiles []string
	// Wanted reports, from the attachment's network alone, whether the caller will use a PCI or
	// vDPA attachment. Nil means yes. For unwanted attachments the kubelet is not queried, so their
	// owner is unknown.
	Wanted func(a *Attachment) bool
	// Unread, if not nil, receives the error of an existing but unreadable source without which
	// Find still returns a result.
	Unread func(error)
}

// reportUnread reports why a source cannot be read, unless err is nil.
func (q *Query) reportUnread(err error) {
	if err != nil && q.Unread != nil {
		q.Unread(err)
	}
}

// Options are the sources of a Finder. All paths are host paths.
type Options struct {
	CNIDir, DPDir string // "" is the default of the specification
	MultusDir     string // "" for a node without Multus
	PluginsDir    string // the kubelet's plugins, with the metadata of claimed devices; "" for none
	// PodResourcesSocket is the kubelet's socket; "" for a host without a kubelet.
	PodResourcesSocket string
	// Kubelet queries the kubelet while the file PodResourcesSocket exists. If the file exists and
	// Kubelet is nil, the owner of a device cannot be determined.
	Kubelet Kubelet
	// PodsSocket is the socket of the kubelet's Pods API; "" for none. Nothing depends on it.
	PodsSocket string
	// Pods queries the Pods API. It can be nil.
	Pods Pods
	// CheckResponsive is called with the directory of PodsSocket before it is read. On an error there is
	// no Pods API. nil checks nothing.
	CheckResponsive func(dir string) error
	// KubeletRequired accepts only the kubelet as the source of a device's owner. Otherwise the
	// container's environment is trusted if the kubelet has no socket; see
	// docs/explanation/who-gets-which-device.md.
	KubeletRequired bool
	// OwnSocketTerms reports whether a dialect applies to the network or resource, so that the CNI
	// plugin and the device plugin can describe one socket differently. Nil means no.
	OwnSocketTerms func(network, resource string) bool
	// Once is set in a process that calls the Finder once. Nothing is watched then.
	Once bool
}

// Finder finds the attachments of containers. It is safe for concurrent use.
type Finder struct {
	host  hostfs.Root
	opts  Options
	dp    deviceinfo.DevicePluginDir
	index *infoIndex // nil with Options.Once
}

// New returns a Finder. It opens nothing; Close closes everything that later calls open. A relative
// CNIDir is errdefs.ErrInvalidArgument. Other relative paths are reported when they are used.
func New(host hostfs.Root, opts Options) (*Finder, error) {
	f := &Finder{host: host, opts: opts, dp: deviceinfo.DevicePluginDir{Root: host.Dir(), Dir: opts.DPDir}}
	var err error
	if !opts.Once {
		if f.index, err = newInfoIndex(host, opts.CNIDir); err != nil {
			return nil, fmt.Errorf("create finder of attachments: %w", err)
		}
	}
	return f, nil
}

// Close closes the watched directory. Later calls return an error.
func (f *Finder) Close() error {
	if f.index == nil {
		return nil
	}
	return f.index.Close()
}

// entries reads the device-info files of a sandbox.
func (f *Finder) entries(sandboxID string) ([]deviceinfo.Entry, error) {
	switch {
	case sandboxID == "":
		return nil, nil
	case f.index == nil:
		return deviceinfo.CNIDir{Root: f.host.Dir(), Dir: f.opts.CNIDir}.ReadSandbox(sandboxID)
	}
	return f.index.lookup(sandboxID)
}

// FindsNothing reports, without opening a file, that Find would return nothing. If that is
// uncertain it returns false. Most containers have no fast-path network, and this check is their
// only cost.
func (f *Finder) FindsNothing(q Query) bool {
	if f.index == nil || q.Networks != "" || len(q.MetadataFiles) > 0 && f.opts.PluginsDir != "" {
		return false
	}
	if slices.ContainsFunc(q.Env, func(kv string) bool { return strings.HasPrefix(kv, envPrefix) }) {
		return false
	}
	if q.SandboxID == "" {
		return true
	}
	exists, err := f.index.hasSandbox(q.SandboxID)
	return !exists && err == nil
}
