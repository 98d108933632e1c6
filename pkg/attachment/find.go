// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Sandbox gives the attachments of a sandbox, sorted by interface: those that
// have device-info, and those that have none where Multus gave them a device or
// the pod's annotation names them. An error is one of the directory; that of a
// file is in its attachment.
func (f *Finder) Sandbox(ctx context.Context, q Query) ([]Attachment, error) {
	s, err := f.search(ctx, &q)
	if s == nil {
		return nil, err
	}
	return s.attached, err
}

// Allocated gives the PCI and vDPA devices that were allocated to the container
// and that no network of the sandbox claims, sorted by device: what a device
// plugin's file describes, and what is a PCI address by its ID. Nothing is looked
// for where neither the container's environment nor an attachment tells of a
// device plugin.
func (f *Finder) Allocated(ctx context.Context, q Query) ([]Attachment, error) {
	_, allocated, err := f.Find(ctx, q)
	return allocated, err
}

// Find is Sandbox and Allocated in one.
func (f *Finder) Find(ctx context.Context, q Query) (attached, allocated []Attachment, err error) {
	s, err := f.search(ctx, &q)
	if s == nil || err != nil {
		return nil, nil, err
	}
	return s.attached, s.unclaimed(), nil
}

// search is one question under way: everything is read once at most.
type search struct {
	*Finder
	ctx      context.Context
	q        *Query
	env      environment
	envNotes []string
	w        *word // nil until the kubelet had to be asked
	files    map[[2]string]pluginFile
	names    []string // in the device plugins' directory, where listed
	listed   bool
	// realNames are the resources that variables stand for, by the variable's key.
	realNames map[string]string
	attached  []Attachment
	devices   []device // in the device-info of the networks, usable or not
}

// search finds the attachments of a sandbox. It is nil where there is nothing to
// find.
func (f *Finder) search(ctx context.Context, q *Query) (*search, error) {
	entries, err := f.entries(q.SandboxID)
	if err != nil {
		return nil, err
	}
	env, envNotes := parseEnvironment(q.Env)
	if len(entries) == 0 && q.Networks == "" && len(env) == 0 {
		return nil, nil
	}
	s := &search{Finder: f, ctx: ctx, q: q, env: env, envNotes: envNotes}
	if len(entries) > 0 || q.Networks != "" {
		s.networks(entries)
	}
	for i := range s.attached {
		s.owner(&s.attached[i])
	}
	return s, nil
}

// record is what Multus left of the sandbox.
type record struct {
	delegates []delegate
	file      string // Multus' scratch file
	note      string // why it is not used
}

func (s *search) record() record {
	if s.opts.MultusDir == "" || s.q.SandboxID == "" {
		return record{}
	}
	ds, file, err := readDelegates(s.host, s.opts.MultusDir, s.q.SandboxID)
	r := record{delegates: ds, file: file}
	if err != nil {
		r.note = "not used: " + err.Error()
		s.q.unread(err)
	}
	return r
}

// of is the delegate of an interface, nil when there is none.
func (r *record) of(ifName string) *delegate {
	for i := range r.delegates {
		if r.delegates[i].ifName == ifName && ifName != "" {
			return &r.delegates[i]
		}
	}
	return nil
}

// networks puts together what the sources say of the pod's networks.
func (s *search) networks(entries []deviceinfo.Entry) {
	rec := s.record()
	var common []string
	if rec.note != "" {
		common = append(common, rec.note)
	}
	named, err := parseNetworks(s.q.Networks, s.q.Namespace)
	if err != nil {
		common = append(common, "not used: "+err.Error())
	}
	for i := range entries {
		s.attached = append(s.attached, s.fromEntry(&entries[i], &rec, named))
	}
	s.missing(&rec, named)
	for i := range s.attached {
		s.attached[i].Notes = append(s.attached[i].Notes, common...)
	}
	s.oneFileEach()
	s.oneNetworkEach()
	slices.SortStableFunc(s.attached, func(a, b Attachment) int {
		return cmp.Or(strings.Compare(a.IfName, b.IfName), strings.Compare(a.Network, b.Network), strings.Compare(a.File, b.File))
	})
}

// fromEntry makes an attachment of a device-info file.
func (s *search) fromEntry(e *deviceinfo.Entry, rec *record, named []selection) Attachment {
	a := Attachment{IfName: e.IfName, Info: e.Info, File: e.File, Err: e.Err, Owner: OwnerUnknown}
	d := rec.of(e.IfName)
	var note string
	a.NetworkGuessed = d == nil || d.name == ""
	if a.Network, note = nameOf(e, d, named, s.q.Namespace); note != "" {
		a.Notes = append(a.Notes, note)
	}
	if a.Err == nil {
		for _, w := range a.Info.Warnings {
			a.Notes = append(a.Notes, w.Error())
		}
	}
	if e.IfName == "" {
		return a // of the directory
	}
	s.claim(a.Info)
	multus := Claim{Source: rec.file}
	if d != nil {
		a.DeviceID, a.Resource = d.deviceID, d.resource
	}
	s.checkResult(&a, d, &multus)
	s.checkDevice(&a, multus)
	return a
}

// checkResult looks into libcni's record of the attachment of a device, which has
// the device ID as well, and takes it from there where Multus' own record is not
// there.
func (s *search) checkResult(a *Attachment, d *delegate, multus *Claim) {
	if _, ok := deviceOf(a.Info); !ok || s.opts.MultusDir == "" {
		return
	}
	conf := ""
	if d != nil {
		conf = d.conf
	}
	if conf == "" {
		// A network is often called like its configuration.
		_, conf, _ = strings.Cut(a.Network, "/")
	}
	if conf == "" {
		return
	}
	c, file, err := readResult(s.host, s.opts.MultusDir, conf, s.q.SandboxID, a.IfName)
	switch {
	case err != nil:
		a.Notes = append(a.Notes, "not used: "+err.Error())
		s.q.unread(err)
	case c == nil || c.deviceID == "":
	case a.DeviceID == "" && d == nil:
		a.DeviceID, multus.Source = c.deviceID, file
	case a.DeviceID != "" && normal(a.DeviceID) != normal(c.deviceID):
		a.refuse(&ConflictError{On: which(a), First: Claim{multus.Source, "device ID " + quote(a.DeviceID)},
			Second: Claim{file, "device ID " + quote(c.deviceID)}, Hint: hintRecreate})
	}
}

const hintRecreate = "delete the pod, so that it is attached anew"

func which(a *Attachment) string {
	if a.IfName == "" {
		return "which device " + quote(a.DeviceID) + " is"
	}
	return "which device " + a.IfName + " is"
}

// checkDevice compares the device in a CNI plugin's file with the one that Multus
// gave to the network, and with the device plugin's file of that one.
func (s *search) checkDevice(a *Attachment, multus Claim) {
	if a.Err != nil || a.DeviceID == "" {
		return
	}
	dev, ok := deviceOf(a.Info)
	if !ok {
		s.checkSocket(a)
		return
	}
	if dev.contradicts(a.DeviceID) {
		a.refuse(&ConflictError{On: which(a), First: Claim{a.File, dev.String()},
			Second: Claim{multus.Source, "device ID " + quote(a.DeviceID)}, Hint: hintRecreate})
		return
	}
	if a.Resource == "" {
		return
	}
	p := s.pluginFile(a.Resource, a.DeviceID)
	if other, ok := deviceOf(p.info); ok && !other.same(dev) {
		a.refuse(&ConflictError{On: which(a), First: Claim{a.File, dev.String()}, Second: Claim{p.path, other.String()}, Hint: hintRecreate})
	} else if p.err != nil {
		a.Notes = append(a.Notes, "not used: "+p.err.Error())
	}
}

// checkSocket compares the socket in a CNI plugin's file with the one in the device
// plugin's file of the device that Multus gave to the network: another path is another
// port's socket.
func (s *search) checkSocket(a *Attachment) {
	if a.Resource == "" || s.opts.OwnSocketTerms != nil && s.opts.OwnSocketTerms(a.Network, a.Resource) {
		return
	}
	have, ok := socketOf(a.Info)
	if !ok {
		return
	}
	p := s.pluginFile(a.Resource, a.DeviceID)
	if p.err != nil {
		a.Notes = append(a.Notes, "not used: "+p.err.Error())
		return
	}
	allocated, ok := socketOf(p.info)
	if !ok || allocated.kind == have.kind && allocated.mode == have.mode && s.samePath(allocated.path, have.path) {
		return
	}
	a.refuse(&ConflictError{On: "which socket " + a.IfName + " is", First: Claim{a.File, have.String()},
		Second: Claim{p.path, allocated.String() + " of the allocated device " + quote(a.DeviceID)}, Hint: hintSocket})
}

// samePath reports whether two paths of the host, or abstract names, are of one socket.
func (s *search) samePath(a, b string) bool {
	return a == b || path.IsAbs(a) && path.IsAbs(b) && s.host.Canonical(a) == s.host.Canonical(b)
}

const hintSocket = "have the network's CNI plugin keep the device plugin's path and mode (with jackfield-cni: remove device.path and device.mode or device.role " +
	"from its configuration), or configure a dialect for the network or resource"

// missing adds the networks that have no device-info file: those that Multus gave
// a device, and those that the pod's author named.
func (s *search) missing(rec *record, named []selection) {
	have := func(network, ifName string) bool {
		return slices.ContainsFunc(s.attached, func(a Attachment) bool {
			return ifName != "" && a.IfName == ifName || ifName == "" && a.Network == network
		})
	}
	for i := range rec.delegates {
		d := &rec.delegates[i]
		wanted := d.deviceID != "" || slices.ContainsFunc(named, func(n selection) bool { return n.network == d.name })
		if wanted && !have(d.name, d.ifName) {
			s.attached = append(s.attached, s.withoutFile(d))
		}
	}
	for _, n := range named {
		known := slices.ContainsFunc(rec.delegates, func(d delegate) bool { return d.name == n.network })
		if !known && !have(n.network, n.ifName) {
			s.attached = append(s.attached, Attachment{Network: n.network, NetworkGuessed: true, IfName: n.ifName, Owner: OwnerUnknown,
				Notes: []string{"there is no device-info of the network, and no record of Multus that it was attached"}})
		}
	}
}

// withoutFile is a network that Multus attached and that has no device-info file
// of its own. Where the kubelet gave a device for it, the device plugin's file is
// what the network's would be a copy of (Device Information Specification,
// §4.2.1).
func (s *search) withoutFile(d *delegate) Attachment {
	a := Attachment{Network: d.name, IfName: d.ifName, DeviceID: d.deviceID, Resource: d.resource, Owner: OwnerUnknown}
	note := func(format string, args ...any) { a.Notes = append(a.Notes, fmt.Sprintf(format, args...)) }
	switch {
	case d.deviceID == "":
		note("there is no device-info of the network: it brings no device, or its CNI plugin does not tell")
		return a
	case d.resource == "":
		note("there is no device-info of the network; its device ID %s is from the pod's annotation and is not used", quote(d.deviceID))
		return a
	}
	found, ok := s.allocated(d.resource, d.deviceID)
	if !ok {
		note("there is no device-info of the network, nor of device %s of resource %s that Multus gave it", quote(d.deviceID), quote(d.resource))
		return a
	}
	note("there is no device-info file of the network; device %s of resource %s was given to it by Multus' record", quote(d.deviceID), quote(d.resource))
	a.Info, a.File, a.Err = found.Info, found.File, found.Err
	s.claim(a.Info)
	a.Notes = append(a.Notes, found.Notes...)
	return a
}

// oneFileEach makes two device-info files of one interface a conflict of both.
func (s *search) oneFileEach() {
	s.unique(func(a *Attachment) (key string, on string, c Claim) {
		if a.File == "" {
			return "", "", Claim{}
		}
		return a.IfName, "which network " + a.IfName + " is", Claim{a.File, quote(a.Network)}
	})
}

// oneNetworkEach makes one device in two networks a conflict of both.
func (s *search) oneNetworkEach() {
	s.unique(func(a *Attachment) (key string, on string, c Claim) {
		d, ok := deviceOf(a.Info)
		if !ok {
			return "", "", Claim{}
		}
		return d.name(), "which interface " + d.String() + " is", Claim{a.File, a.IfName}
	})
}

// unique makes attachments with the same key a conflict of each.
func (s *search) unique(of func(a *Attachment) (key, on string, c Claim)) {
	first := make(map[string]int, len(s.attached))
	var clashes map[int]error
	for i := range s.attached {
		key, on, claim := of(&s.attached[i])
		j, twice := first[key]
		switch {
		case key == "":
		case !twice:
			first[key] = i
		default:
			_, _, other := of(&s.attached[j])
			if clashes == nil {
				clashes = map[int]error{}
			}
			clashes[i] = &ConflictError{On: on, First: other, Second: claim, Hint: hintRecreate}
			if clashes[j] == nil {
				clashes[j] = clashes[i]
			}
		}
	}
	for i, err := range clashes {
		s.attached[i].refuse(err)
	}
}

// claim remembers the device of a network.
func (s *search) claim(i *deviceinfo.Info) {
	if d, ok := deviceOf(i); ok {
		s.devices = append(s.devices, d)
	}
}

// refuse makes an attachment one that cannot be used.
func (a *Attachment) refuse(err error) { a.Err, a.Info = err, nil }
