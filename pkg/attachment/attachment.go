// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// NetworksAnnotation is the pod's choice of networks (Multi-Network CRD
// specification). Names and order are taken from it, never paths or devices.
const NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"

// Owner says whose a PCI or vDPA device is.
type Owner string

// The owners. A socket belongs to the network and so to every container: its
// owner is unknown.
const (
	OwnerUnknown   Owner = "unknown"
	OwnedHere      Owner = "this container"
	OwnedElsewhere Owner = "another container"
)

// Attachment is one network attachment of a pod, or one allocated device that no
// network claims. Of a network that has no device-info, and need not have any,
// neither Info nor Err is set.
type Attachment struct {
	Network string // namespace/name where it is known, otherwise as the file's name has it; "" for a device without a network
	// NetworkGuessed is set unless Multus' record of the sandbox names Network: the
	// pod's annotation or its namespace said where the file's name is to be split.
	// That is good for messages and for choosing a network, and not for policy.
	NetworkGuessed bool
	IfName         string           // in the pod; "" for a device without a network, and where only the annotation tells of the network
	Info           *deviceinfo.Info // nil where Err is set
	File           string           // host path of the device-info file; "" where there is none
	// DeviceID is what the device plugin calls the device, "" unless known.
	DeviceID string
	// Device is what DeviceID stands for, where Owner is OwnedHere: a PCI address,
	// or the name of a vDPA device. It is DeviceID itself, unless DeviceID says
	// nothing to others and the device plugin's file says what it means.
	Device    string
	Resource  string // the extended resource it was allocated from, "" unless known
	Owner     Owner
	OwnerFrom string // which source said so: see [FromKubelet], [FromEnvironment]; "" where none did
	// Announced are the paths of device nodes, in the container, that the device
	// plugin announces for the device in PCIDEVICE_*_INFO, sorted: a hint, never
	// what is delivered.
	Announced []string
	Notes     []string // what a person should know of it
	Err       error    // why it cannot be used; a *ConflictError where sources disagree
}

// PolicyNetwork is the network's name for a policy: Network, or, where that is
// guessed, namespace and name with "-" between, as in the device-info file's name.
func (a *Attachment) PolicyNetwork() string {
	if a.NetworkGuessed {
		return dashed(a.Network)
	}
	return a.Network
}

// Query says which sandbox, and which of its containers, is asked about.
type Query struct {
	SandboxID              string
	Namespace, Pod, PodUID string
	Container              string   // its name in the pod
	Networks               string   // value of NetworksAnnotation
	Env                    []string // of the container, NAME=value
	// Wanted reports whether the caller will use a PCI or vDPA attachment; nil stands
	// for yes. It looks at the attachment's network
	// alone. The kubelet is not asked about the devices of others:
	// their owner stays unknown.
	Wanted func(a *Attachment) bool
	// Unread, when not nil, is called with why a source that is there could not be
	// read, where the answer is given without that source.
	Unread func(error)
}

// unread reports a source that could not be read.
func (q *Query) unread(err error) {
	if q.Unread != nil {
		q.Unread(err)
	}
}

// Options say where a Finder looks. All paths are host paths.
type Options struct {
	CNIDir, DPDir string // "" is the specification's
	MultusDir     string // "" for a node without Multus
	// PodResourcesSocket is the kubelet's; "" for a host without a kubelet.
	PodResourcesSocket string
	// Kubelet is asked; the caller closes it. With PodResourcesSocket set it is asked
	// while there is such a file. Without one, and with the file, nobody says whose a
	// device is.
	Kubelet Kubelet
	// KubeletRequired lets nothing but the kubelet say whose a device is. Without
	// it the container's environment is believed where there is no kubelet's
	// socket: see docs/attachments.md for what that means.
	KubeletRequired bool
	// OwnSocketTerms reports whether device-info of the network or resource is read in
	// terms of its own, so that the CNI plugin and the device plugin may describe one
	// socket differently; nil for no.
	OwnSocketTerms func(network, resource string) bool
	// Budget is the longest wait for the kubelet in one call, which also takes no
	// more than a third of the time that the caller's context leaves. 0 stands for
	// DefaultBudget.
	Budget time.Duration
	// Once is for a process that asks once and ends: nothing is watched.
	Once bool
}

// Finder looks attachments up. It is safe for concurrent use.
type Finder struct {
	host    hostfs.Root
	opts    Options
	dp      deviceinfo.DevicePluginDir
	index   *deviceinfo.Index // nil with Options.Once
	kubelet Kubelet           // nil without a kubelet
	silence silence
}

// New makes a Finder. It opens nothing yet; Close frees what calls open. A path
// that is not absolute is errdefs.ErrInvalidArgument.
func New(host hostfs.Root, opts Options) (*Finder, error) {
	for _, f := range []struct{ field, path string }{
		{"CNIDir", opts.CNIDir}, {"DPDir", opts.DPDir}, {"MultusDir", opts.MultusDir}, {"PodResourcesSocket", opts.PodResourcesSocket},
	} {
		if f.path == "" {
			continue
		}
		if err := hostfs.CheckPath(f.path); err != nil {
			return nil, fmt.Errorf("make finder of attachments: %s: %w", f.field, err)
		}
	}
	if opts.Budget <= 0 {
		opts.Budget = DefaultBudget
	}
	f := &Finder{host: host, opts: opts, kubelet: opts.Kubelet, dp: deviceinfo.DevicePluginDir{Root: host, Dir: opts.DPDir}}
	var err error
	if !opts.Once {
		if f.index, err = deviceinfo.NewIndex(host, opts.CNIDir, deviceinfo.IndexOptions{}); err != nil {
			return nil, errors.Join(fmt.Errorf("make finder of attachments: %w", err), f.Close())
		}
	}
	return f, nil
}

// Close frees what the Finder watches and keeps open. Calls fail from then on.
func (f *Finder) Close() error {
	var errs []error
	if f.index != nil {
		errs = append(errs, f.index.Close())
	}
	return errors.Join(errs...)
}

// entries reads the device-info files of a sandbox.
func (f *Finder) entries(sandboxID string) ([]deviceinfo.Entry, error) {
	switch {
	case sandboxID == "":
		return nil, nil
	case f.index == nil:
		return deviceinfo.ReadSandbox(f.host, f.opts.CNIDir, sandboxID)
	}
	return f.index.Lookup(sandboxID)
}
