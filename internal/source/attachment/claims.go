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

// A resource claim's device is described twice: the kubelet lists its pool and name, and the DRA
// driver's metadata file has the address or socket. The kubelet alone decides who owns the device;
// the metadata only describes it.
//
// metadataDir is the directory in a container with the metadata of its claims. For each request,
// the kubelet requests a mount of a host file there (KEP-5304).
const metadataDir = "/var/run/kubernetes.io/dra-device-attributes/"

// IsMetadataMount reports whether the destination of a mount is a file of device metadata, which
// means that the container has a resource claim. A pod's author can add such mounts as well, so the
// result only decides whether the kubelet is queried.
func IsMetadataMount(destination string) bool {
	return strings.HasPrefix(destination, metadataDir) || strings.HasPrefix("/var"+destination, metadataDir)
}

// ClaimedDevice is a device of a resource claim, from the kubelet's list and the driver's metadata.
// Without metadata only the kubelet's part is known, and Request is "".
type ClaimedDevice struct {
	Namespace, Claim     string // of the claim
	Driver, Pool, Device string // as the kubelet lists them
	PodClaim             string // the claim's name in the pod's spec, for a claim from a template; otherwise ""
	Request              string // the claim's request, with its subrequest
	Number               int    // index in a request with several devices, from 1; 0 for the only device
	File                 string // host path of the metadata
	IfName               string // interface in the pod; "" if unknown
	IPs                  []string
	MAC                  string
	MTU                  int // 0 if unknown
}

// Name returns CLAIM/REQUEST, the path below the container's metadata directory. A claim from a
// template has its name in the pod's spec. If a request has several devices, a number follows. The
// name of nil is "".
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
	meta *devicemetadata.Device // nil without metadata
	err  error                  // why the metadata is unusable
}

// claimKey identifies the metadata of one driver for one claim.
type claimKey struct{ driver, namespace, claim string }

type claimFiles struct {
	files []devicemetadata.File
	err   error
}

// readClaim reads the metadata of a claim and caches it.
func (f *deviceFiles) readClaim(cl *allocation.ClaimDevice) claimFiles {
	if f.opts.PluginsDir == "" || cl.Driver == "" {
		return claimFiles{} // an old kubelet lists no driver
	}
	key := claimKey{cl.Driver, cl.Namespace, cl.Claim}
	if c, ok := f.claims[key]; ok || len(f.claims) >= maxPluginFiles {
		return c
	}
	var c claimFiles
	c.files, c.err = f.metadataDir().ReadClaim(cl.Driver, cl.Namespace, cl.Claim)
	f.q.reportUnread(c.err)
	for i := range c.files {
		f.q.reportUnread(c.files[i].Err)
	}
	f.claims[key] = c
	return c
}

func (f *Finder) metadataDir() devicemetadata.Dir {
	return devicemetadata.Dir{Host: f.host, Path: f.opts.PluginsDir}
}

// locateMetadata returns the metadata file behind the source of a mount, which is a path on the
// machine. The driver can use the plugins' directory by its own path or through a symlink.
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

// MetadataFiles returns the host paths of the metadata files among the sources of mounts.
func (f *Finder) MetadataFiles(sources []string) (files []string) {
	for _, source := range sources {
		if at, ok := f.locateMetadata(source); ok {
			files = append(files, at.Path)
		}
	}
	return files
}

// describeClaimed adds the driver's metadata to a device that the kubelet lists.
func (f *deviceFiles) describeClaimed(cl allocation.ClaimDevice) claimedDevice {
	c := claimedDevice{ClaimedDevice: ClaimedDevice{Namespace: cl.Namespace, Claim: cl.Claim, Driver: cl.Driver,
		Pool: cl.Pool, Device: cl.Device}}
	claim := f.readClaim(&cl)
	c.err = claim.err
	for i := range claim.files {
		file := &claim.files[i]
		if file.Err != nil {
			c.err = cmp.Or(c.err, file.Err)
			continue
		}
		for _, r := range file.Metadata.Requests {
			for n := range r.Devices {
				d := &r.Devices[n]
				if d.Pool != cl.Pool || d.Name != cl.Device {
					continue
				}
				if c.meta != nil {
					if err := compareDescriptions(&c, file.Path, d); err != nil {
						c.err = err
						return c
					}
					continue // if two requests have the device, the first one counts
				}
				c.meta, c.File, c.Request, c.PodClaim = d, file.Path, r.Name, file.Metadata.PodClaim
				if len(r.Devices) > 1 {
					c.Number = n + 1
				}
				c.IfName, c.IPs, c.MAC, c.MTU = d.IfName, slices.Clone(d.IPs), d.MAC, d.MTU
			}
		}
	}
	if c.meta != nil {
		c.err = nil // the damaged file belongs to another request
	}
	return c
}

// compareDescriptions returns a conflict if two files describe one device differently.
func compareDescriptions(c *claimedDevice, file string, d *devicemetadata.Device) error {
	for _, f := range []struct{ property, first, second string }{
		{"PCI device ", c.meta.PCIAddress, d.PCIAddress},
		{"socket ", c.meta.VhostUserPath, d.VhostUserPath},
		{"interface ", c.meta.IfName, d.IfName},
	} {
		if f.first != "" && f.second != "" && f.first != f.second {
			return &ConflictError{On: "which device " + diag.Quote(c.Device) + " of claim " +
				diag.Quote(c.Namespace+"/"+c.Claim) + " is",
				First: Claim{c.File, f.property + f.first}, Second: Claim{file,
					f.property + f.second}, Hint: hintDriver}
		}
	}
	other := newClaimRecord(&ClaimedDevice{File: file, MAC: d.MAC, IPs: d.IPs, MTU: d.MTU})
	return compareInterfaces("device "+diag.Quote(c.Device)+" of claim "+diag.Quote(c.Namespace+"/"+c.Claim),
		newClaimRecord(&c.ClaimedDevice), other, hintDriver)
}

const hintDriver = "have the driver write its metadata again: delete the pod, and restart the driver if that " +
	"does not help"

// isUsed reports whether this container uses the request of a claimed device. The kubelet lists a
// claim's devices for each container that uses any of its requests. The runtime mounts only the
// metadata of the requests that the container uses.
func (f *deviceFiles) isUsed(c *claimedDevice) bool {
	used := true
	for _, source := range f.q.MetadataFiles {
		file, ok := f.locateMetadata(source)
		if !ok || file.Namespace != c.Namespace || file.Claim != c.Claim {
			continue
		}
		if base, _, _ := strings.Cut(c.Request, "/"); file.Driver == c.Driver && file.Request == base {
			return true
		}
		used = false
	}
	return used || c.meta == nil
}

// isDevice reports whether a claimed device is device d. If the metadata has an address, the
// address decides. Otherwise the device's name decides, because drivers derive it from the address.
func (c *claimedDevice) isDevice(d device) (bool, error) {
	if c.meta != nil && c.meta.PCIAddress != "" {
		return d.pci == c.meta.PCIAddress, nil
	}
	matches := d.matchesID(c.Device) || d.pci != "" && claimName(d.pci) == c.Device
	if matches && c.err != nil {
		return false, c.err
	}
	return matches, nil
}

// claimName returns a PCI address in the spelling of DRA drivers, which name devices with DNS
// labels (dra-driver-sriov).
func claimName(pci string) string { return strings.NewReplacer(":", "-", ".", "-").Replace(pci) }

// findClaimedDevices returns the claimed devices of this container that have metadata and belong to
// no network.
func (s *Search) findClaimedDevices() []Attachment {
	answer := s.kubelet.allocation()
	if !answer.listed {
		return s.listUnknownClaims()
	}
	var out []Attachment
	for _, cl := range answer.container.Claims {
		c := s.files.describeClaimed(cl)
		if c.meta == nil && c.err == nil || !s.files.isUsed(&c) {
			continue
		}
		a := c.newAttachment(answer.source)
		a.Resource = s.kubelet.resourceOfClaimed(a.Claimed)
		s.compareInterface(&a)
		s.compareSocket(&a)
		if d, ok := deviceOf(a.Info); ok && s.isOfNetwork(a, d) {
			continue
		}
		out = append(out, a)
	}
	out = append(out, s.findUnallocated()...)
	rejectDuplicates(out, sysfsNameOf, func(a *Attachment) (on string, c Claim) {
		d, _ := deviceOf(a.Info)
		return "whose " + d.String() + " is", Claim{a.File,
			"it is device " + diag.Quote(a.Claimed.Device) + " of pool " + diag.Quote(a.Claimed.Pool)}
	}, hintDriver)
	return out
}

// newAttachment returns the device as an attachment of this container. A vhost-user socket comes
// before a PCI address, which can belong to the switch's uplink.
func (c *claimedDevice) newAttachment(source string) Attachment {
	claimed := c.ClaimedDevice
	a := Attachment{Claimed: &claimed, DeviceID: c.Device, IfName: c.IfName, File: c.File, Owner: OwnedHere,
		OwnerFrom: source, Err: c.err}
	switch {
	case c.err != nil:
	case c.meta.VhostUserPath != "":
		// With the existing drivers the application creates the socket, and the path is the path in
		// the container.
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

// compareInterface reports a conflict if a claimed device and a network have the same interface but
// are different devices.
func (s *Search) compareInterface(a *Attachment) {
	for i := range s.attached {
		n := &s.attached[i]
		if a.IfName == "" || n.IfName != a.IfName || a.Info == nil || n.Info == nil {
			continue
		}
		networkDevice, isDevice := deviceOf(n.Info)
		claimed, isPCI := deviceOf(a.Info)
		if !isPCI || isDevice && networkDevice.isSame(claimed) {
			continue
		}
		description := networkDevice.String()
		if socket, ok := socketOf(n.Info); ok {
			description = socket.String()
		}
		err := &ConflictError{On: "which device " + a.IfName + " is", First: Claim{n.File, description},
			Second: Claim{a.File, claimed.String()}, Hint: hintRecreate}
		n.reject(err)
		a.reject(err)
	}
}

// compareSocket reports a conflict if a claim and a network describe the same socket differently.
func (s *Search) compareSocket(a *Attachment) {
	socket, ok := socketOf(a.Info)
	for i := range s.attached {
		n := &s.attached[i]
		if other, isSocket := socketOf(n.Info); !ok || !isSocket || !s.host.IsSameFile(other.path, socket.path) {
			continue
		}
		if err := s.compareWithClaim(n, a.Claimed, "socket "+diag.Quote(socket.path)); err != nil {
			n.reject(err)
			a.reject(err)
			return
		}
	}
}

// findUnallocated returns a conflict for each device in the metadata of this container's claims
// that the kubelet did not allocate.
func (s *Search) findUnallocated() (out []Attachment) {
	answer := s.kubelet.allocation()
	seen := map[claimKey]bool{}
	for _, cl := range answer.container.Claims {
		key := claimKey{cl.Driver, cl.Namespace, cl.Claim}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, f := range s.files.readClaim(&cl).files {
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

// listUnknownClaims returns the requests whose metadata the container has, for a container that the
// kubelet does not list.
func (s *Search) listUnknownClaims() (out []Attachment) {
	answer := s.kubelet.allocation()
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
