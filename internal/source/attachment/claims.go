// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/source/devicemetadata"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// metadataDir is the directory in a container in which it finds the metadata of its claims. The
// kubelet has the runtime mount a file of the host there for each request (KEP-5304).
const metadataDir = "/var/run/kubernetes.io/dra-device-attributes/"

// IsMetadataMount reports whether the destination of a mount is that of device metadata, so that
// the container has a resource claim. A pod's author can have such a mount, too: it only decides
// whether the kubelet is asked.
func IsMetadataMount(destination string) bool {
	return strings.HasPrefix(destination, metadataDir) || strings.HasPrefix("/var"+destination, metadataDir)
}

// ClaimedDevice is what the kubelet and the driver say about a device of a resource claim. Without
// metadata of the driver only the kubelet's part is known, and Request is "".
type ClaimedDevice struct {
	Namespace, Claim     string // of the claim
	Driver, Pool, Device string // as the kubelet lists it
	PodClaim             string // the claim in the pod's spec, for a claim from a template; otherwise ""
	Request              string // of the claim, with its subrequest
	Number               int    // of the device in a request with several, from 1; 0 for the only one
	File                 string // host path of the metadata
	IfName               string // in the pod; "" if unknown
	IPs                  []string
	MAC                  string
	MTU                  int // 0 if unknown
}

// Name returns CLAIM/REQUEST as the container finds them below its directory of metadata: a claim
// from a template has its name in the pod's spec. Several devices of a request are numbered. The name of
// nil is "".
func (c *ClaimedDevice) Name() string {
	if c == nil {
		return ""
	}
	name := cmp.Or(c.PodClaim, c.Claim) + "/" + cmp.Or(c.Request, c.Device)
	if c.Number > 0 {
		name += fmt.Sprintf("/%d", c.Number)
	}
	return name
}

// claimedDevice is a ClaimedDevice with the driver's metadata.
type claimedDevice struct {
	ClaimedDevice
	meta *devicemetadata.Device // nil if no metadata describes the device
	err  error                  // why the metadata cannot be used
}

// claimKey identifies the metadata of one driver for one claim.
type claimKey struct{ driver, namespace, claim string }

type claimFiles struct {
	files []devicemetadata.File
	err   error
}

// readClaim reads the metadata of a claim, once.
func (s *Search) readClaim(cl *allocation.ClaimDevice) claimFiles {
	if s.opts.PluginsDir == "" || cl.Driver == "" {
		return claimFiles{} // an old kubelet lists no driver
	}
	key := claimKey{cl.Driver, cl.Namespace, cl.Claim}
	if have, ok := s.claims[key]; ok || len(s.claims) >= maxPluginFiles {
		return have
	}
	var c claimFiles
	c.files, c.err = s.metadataDir().ReadClaim(cl.Driver, cl.Namespace, cl.Claim)
	s.q.reportUnread(c.err)
	for i := range c.files {
		s.q.reportUnread(c.files[i].Err)
	}
	s.claims[key] = c
	return c
}

func (f *Finder) metadataDir() devicemetadata.Dir {
	return devicemetadata.Dir{Host: f.host, Path: f.opts.PluginsDir}
}

// locateMetadata returns the place of the metadata file that a mount has as its source, a path on the
// machine. The driver may know the plugins' directory by its own path or by a symlink.
func (f *Finder) locateMetadata(source string) (devicemetadata.File, bool) {
	if f.opts.PluginsDir == "" {
		return devicemetadata.File{}, false
	}
	for _, dir := range []string{f.opts.PluginsDir, f.host.Canonical(f.opts.PluginsDir)} {
		if rel, ok := strings.CutPrefix(source, f.host.Path(dir)+"/"); ok {
			return f.metadataDir().Locate(f.opts.PluginsDir + "/" + rel)
		}
	}
	return devicemetadata.File{}, false
}

// MetadataFiles returns the host paths of the metadata files that are the sources of mounts.
func (f *Finder) MetadataFiles(sources []string) (files []string) {
	for _, source := range sources {
		if at, ok := f.locateMetadata(source); ok {
			files = append(files, at.Path)
		}
	}
	return files
}

// describeClaimed returns what is known about a device that the kubelet lists.
func (s *Search) describeClaimed(cl allocation.ClaimDevice) claimedDevice {
	c := claimedDevice{ClaimedDevice: ClaimedDevice{Namespace: cl.Namespace, Claim: cl.Claim, Driver: cl.Driver,
		Pool: cl.Pool, Device: cl.Device}}
	have := s.readClaim(&cl)
	c.err = have.err
	for i := range have.files {
		f := &have.files[i]
		if f.Err != nil {
			c.err = cmp.Or(c.err, f.Err)
			continue
		}
		for _, r := range f.Metadata.Requests {
			for n := range r.Devices {
				d := &r.Devices[n]
				if d.Pool != cl.Pool || d.Name != cl.Device {
					continue
				}
				if c.meta != nil {
					if err := compareDescriptions(&c, f.Path, d); err != nil {
						c.err = err
						return c
					}
					continue // of two requests the first one names the device
				}
				c.meta, c.File, c.Request, c.PodClaim = d, f.Path, r.Name, f.Metadata.PodClaim
				if len(r.Devices) > 1 {
					c.Number = n + 1
				}
				c.IfName, c.IPs, c.MAC, c.MTU = d.IfName, slices.Clone(d.IPs), d.MAC, d.MTU
			}
		}
	}
	if c.meta != nil {
		c.err = nil // the file at fault is of another request
	}
	return c
}

// compareDescriptions returns a conflict if two files describe one device differently.
func compareDescriptions(c *claimedDevice, file string, d *devicemetadata.Device) error {
	for _, f := range []struct{ what, first, second string }{
		{"PCI device ", c.meta.PCIAddress, d.PCIAddress},
		{"socket ", c.meta.VhostUserPath, d.VhostUserPath},
		{"interface ", c.meta.IfName, d.IfName},
	} {
		if f.first != "" && f.second != "" && f.first != f.second {
			return &ConflictError{On: "which device " + diag.Quote(c.Device) + " of claim " +
				diag.Quote(c.Namespace+"/"+c.Claim) + " is",
				First: Claim{c.File, f.what + f.first}, Second: Claim{file, f.what + f.second}, Hint: hintDriver}
		}
	}
	other := newClaimRecord(&ClaimedDevice{File: file, MAC: d.MAC, IPs: d.IPs, MTU: d.MTU})
	return compareInterfaces("device "+diag.Quote(c.Device)+" of claim "+diag.Quote(c.Namespace+"/"+c.Claim),
		newClaimRecord(&c.ClaimedDevice), other, hintDriver)
}

const hintDriver = "have the driver write its metadata again: delete the pod, and restart the driver if that " +
	"does not help"

// isUsed reports whether this container uses the request of a claim's device. The kubelet lists a
// claim's devices for each container that uses any of its requests. The runtime mounts the metadata
// of exactly those requests that the container uses.
func (s *Search) isUsed(c *claimedDevice) bool {
	used := true
	for _, source := range s.q.MetadataFiles {
		at, ok := s.locateMetadata(source)
		if !ok || at.Namespace != c.Namespace || at.Claim != c.Claim {
			continue
		}
		if base, _, _ := strings.Cut(c.Request, "/"); at.Driver == c.Driver && at.Request == base {
			return true
		}
		used = false
	}
	return used || c.meta == nil
}

// isDevice reports whether a device of a claim is device d. Metadata decides where it has
// the device's address. Without it the device's name does: drivers derive it from the address.
func (c *claimedDevice) isDevice(d device) (bool, error) {
	if c.meta != nil && c.meta.PCIAddress != "" {
		return d.pci == c.meta.PCIAddress, nil
	}
	named := d.matchesID(c.Device) || d.pci != "" && claimName(d.pci) == c.Device
	if named && c.err != nil {
		return false, c.err
	}
	return named, nil
}

// claimName returns a PCI address as drivers of dynamic resource allocation write it, which
// name devices with DNS labels (dra-driver-sriov).
func claimName(pci string) string { return strings.NewReplacer(":", "-", ".", "-").Replace(pci) }

// findClaimedDevices returns the devices of this container's claims that belong to no network and that
// metadata describes.
func (s *Search) findClaimedDevices() []Attachment {
	answer := s.kubeletAnswer()
	if !answer.listed {
		return s.listUnknownClaims()
	}
	var out []Attachment
	for _, cl := range answer.container.Claims {
		c := s.describeClaimed(cl)
		if c.meta == nil && c.err == nil || !s.isUsed(&c) {
			continue
		}
		a := c.newAttachment(answer.source)
		s.compareInterface(&a)
		s.compareSocket(&a)
		if d, ok := deviceOf(a.Info); ok && s.isOfNetwork(a, d) {
			continue
		}
		out = append(out, a)
	}
	out = append(out, s.findUnallocated()...)
	rejectDuplicates(out, func(a *Attachment) (key, on string, c Claim) {
		d, _ := deviceOf(a.Info) // without a name for a socket
		return d.sysfsName(), "whose " + d.String() + " is", Claim{a.File,
			"it is device " + diag.Quote(a.Claimed.Device) + " of pool " + diag.Quote(a.Claimed.Pool)}
	}, hintDriver)
	return out
}

// newAttachment returns the device as an attachment of this container. A vhost-user socket has
// precedence over a PCI address, which may be that of the switch's uplink.
func (c *claimedDevice) newAttachment(source string) Attachment {
	claimed := c.ClaimedDevice
	a := Attachment{Claimed: &claimed, DeviceID: c.Device, IfName: c.IfName, File: c.File, Owner: OwnedHere,
		OwnerFrom: source, Err: c.err}
	switch {
	case c.err != nil:
	case c.meta.VhostUserPath != "":
		// Drivers have the application create the socket, and give the path in the container.
		a.Info = &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version,
			VhostUser: &deviceinfo.VhostUser{Mode: deviceinfo.VhostUserServer, Path: c.meta.VhostUserPath}}
	case c.meta.PCIAddress != "":
		a.Device = c.meta.PCIAddress
		a.Info = &deviceinfo.Info{Type: deviceinfo.TypePCI, Version: deviceinfo.Version,
			PCI: &deviceinfo.PCI{PCIAddress: c.meta.PCIAddress}}
	default:
		a.Notes = append(a.Notes, "the driver's metadata has neither a PCI address nor a socket of the device")
	}
	return a
}

// compareInterface makes a claim's device and a network conflict if they have the same interface and
// are different devices.
func (s *Search) compareInterface(a *Attachment) {
	for i := range s.attached {
		n := &s.attached[i]
		if a.IfName == "" || n.IfName != a.IfName || a.Info == nil || n.Info == nil {
			continue
		}
		have, isDevice := deviceOf(n.Info)
		claimed, isPCI := deviceOf(a.Info)
		if !isPCI || isDevice && have.isSame(claimed) {
			continue
		}
		says := have.String()
		if socket, ok := socketOf(n.Info); ok {
			says = socket.String()
		}
		err := &ConflictError{On: "which device " + a.IfName + " is", First: Claim{n.File, says},
			Second: Claim{a.File, claimed.String()}, Hint: hintRecreate}
		n.reject(err)
		a.reject(err)
	}
}

// compareSocket makes a claim's socket and the same socket of a network conflict if their sources
// describe it differently.
func (s *Search) compareSocket(a *Attachment) {
	socket, ok := socketOf(a.Info)
	for i := range s.attached {
		n := &s.attached[i]
		if have, isSocket := socketOf(n.Info); !ok || !isSocket || !s.host.IsSameFile(have.path, socket.path) {
			continue
		}
		if err := s.compareWithClaim(n, a.Claimed, "socket "+diag.Quote(socket.path)); err != nil {
			n.reject(err)
			a.reject(err)
			return
		}
	}
}

// findUnallocated returns the devices that metadata of this container's claims describes and
// that the kubelet did not allocate, each as a conflict.
func (s *Search) findUnallocated() (out []Attachment) {
	answer := s.kubeletAnswer()
	seen := map[claimKey]bool{}
	for _, cl := range answer.container.Claims {
		key := claimKey{cl.Driver, cl.Namespace, cl.Claim}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, f := range s.readClaim(&cl).files {
			for _, d := range f.Devices() {
				if slices.Contains(answer.container.Claims,
					allocation.ClaimDevice{Namespace: cl.Namespace, Claim: cl.Claim, Driver: d.Driver, Pool: d.Pool,
						Device: d.Name}) {
					continue
				}
				out = append(out, Attachment{DeviceID: d.Name, File: f.Path, Owner: OwnerUnknown,
					Claimed: &ClaimedDevice{Namespace: cl.Namespace, Claim: cl.Claim, Driver: d.Driver, Pool: d.Pool,
						Device: d.Name, Request: f.Request, File: f.Path},
					Err: &ConflictError{On: "which devices claim " + diag.Quote(cl.Namespace+"/"+cl.Claim) + " has",
						First:  Claim{f.Path, "it has device " + diag.Quote(d.Name) + " of pool " + diag.Quote(d.Pool)},
						Second: Claim{answer.source, "it has no such device"}, Hint: hintDriver}})
			}
		}
	}
	return out
}

// listUnknownClaims returns the requests whose metadata the container has, if the kubelet does not say
// which devices are this container's.
func (s *Search) listUnknownClaims() (out []Attachment) {
	answer := s.kubeletAnswer()
	for _, source := range s.q.MetadataFiles {
		f, ok := s.locateMetadata(source)
		if !ok {
			continue
		}
		a := Attachment{File: f.Path, Owner: OwnerUnknown,
			Claimed: &ClaimedDevice{Namespace: f.Namespace, Claim: f.Claim, Driver: f.Driver, Request: f.Request,
				File: f.Path}}
		switch {
		case answer.err != nil:
			a.Err = fmt.Errorf("find the owners of the devices of claim %s: %w", diag.Quote(f.Namespace+"/"+f.Claim),
				answer.err)
		case answer.answered:
			a.Notes = append(a.Notes, unlisted)
		default:
			a.Notes = append(a.Notes, "the kubelet has no socket, so the owners of the claim's devices are unknown")
		}
		out = append(out, a)
	}
	return out
}
