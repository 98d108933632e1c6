// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// NetworksAnnotation is the pod's choice of networks (Multi-Network CRD
// specification). Names and order are taken from it, never paths or devices.
const NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"

// Owner says whose a PCI or vDPA device is.
type Owner string

// The owners. A socket belongs to the network and so to every container.
const (
	OwnerUnknown   Owner = "unknown"
	OwnedHere      Owner = "this container"
	OwnedElsewhere Owner = "another container"
)

// Attachment is one network attachment of a pod, or one allocated device that no
// network claims.
type Attachment struct {
	Network  string           // namespace/name where it is known, otherwise as the file's name has it
	IfName   string           // in the pod; "" for a device without a network
	Info     *deviceinfo.Info // nil where Err is set
	File     string           // the device-info file
	DeviceID string           // as the device plugin calls it, "" unless known
	Resource string           // the extended resource it was allocated from, "" unless known
	Owner    Owner
	Notes    []string
	Err      error
}

// Query says which sandbox, and which of its containers, is asked about.
type Query struct {
	SandboxID              string
	Namespace, Pod, PodUID string
	Container              string   // its name in the pod
	Networks               string   // value of NetworksAnnotation
	Env                    []string // of the container, NAME=value
}

// Options say where a Finder looks.
type Options struct {
	CNIDir, DPDir, MultusDir string
	// Once is for a process that asks once and ends: nothing is watched.
	Once bool
}

// Finder looks attachments up. It is safe for concurrent use.
type Finder struct {
	host hostfs.Root
	opts Options
}

// New makes a Finder.
func New(host hostfs.Root, opts Options) (*Finder, error) {
	return &Finder{host: host, opts: opts}, nil
}

// Close frees what the Finder watches.
func (f *Finder) Close() error { return nil }

// Sandbox gives the attachments of a sandbox, sorted by interface. An error is
// one of the directory; that of a file is in its attachment.
func (f *Finder) Sandbox(ctx context.Context, q Query) ([]Attachment, error) {
	if q.SandboxID == "" {
		return nil, nil
	}
	entries, err := deviceinfo.ReadSandbox(f.host, f.opts.CNIDir, q.SandboxID)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	out := make([]Attachment, len(entries))
	var names []string
	if q.Networks != "" {
		names = networkNames(q.Networks, q.Namespace)
	}
	alloc := allocation(q.Env)
	for i, e := range entries {
		a := Attachment{Network: fullName(e.Network, names, q.Namespace), IfName: e.IfName, Info: e.Info, File: e.File, Err: e.Err, Owner: OwnerUnknown}
		if a.Err == nil {
			a.Resource, a.DeviceID = alloc.find(a.Info)
			if a.DeviceID != "" {
				a.Owner = OwnedHere
			}
			for _, w := range a.Info.Warnings {
				a.Notes = append(a.Notes, w.Error())
			}
		}
		out[i] = a
	}
	return out, nil
}

// fullName finds the network whose name Multus would have written as text:
// namespace and name with "-" between, which cannot be split without knowing.
func fullName(text string, names []string, podNamespace string) string {
	for _, n := range names {
		if strings.ReplaceAll(n, "/", "-") == text {
			return n
		}
	}
	if rest, ok := strings.CutPrefix(text, podNamespace+"-"); ok && podNamespace != "" && rest != "" {
		return podNamespace + "/" + rest
	}
	return text
}

// allocations are the device IDs that a device plugin wrote into the container's
// environment, PCIDEVICE_<RESOURCE>=<id>[,<id>...].
type allocations []allocated

type allocated struct {
	key string // what stands for the resource in the variable's name
	ids []string
}

const (
	pcideviceEnv = "PCIDEVICE_"
	infoSuffix   = "_INFO"
)

func allocation(env []string) allocations {
	var out allocations
	for _, kv := range env {
		key, ok := strings.CutPrefix(kv, pcideviceEnv)
		if !ok {
			continue
		}
		key, value, ok := strings.Cut(key, "=")
		if !ok || value == "" || strings.HasSuffix(key, infoSuffix) {
			continue
		}
		out = append(out, allocated{key: key, ids: strings.Split(value, ",")})
	}
	return out
}

// find gives the resource's key and the device ID under which the device was
// allocated, or nothing.
func (as allocations) find(i *deviceinfo.Info) (resource, id string) {
	var ids []string
	switch {
	case i.Type == deviceinfo.TypePCI:
		ids = []string{i.PCI.PCIAddress}
	case i.Type == deviceinfo.TypeVDPA:
		ids = []string{i.VDPA.PCIAddress, i.VDPA.ParentDevice}
	}
	for _, a := range as {
		for _, id := range ids {
			if id != "" && slices.ContainsFunc(a.ids, func(have string) bool { return strings.EqualFold(have, id) }) {
				return a.key, id
			}
		}
	}
	return "", ""
}
