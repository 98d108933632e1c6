// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Find returns the attachments of the sandbox, sorted by interface, and the PCI and vDPA
// devices that are allocated to the container but belong to no network, sorted by device.
//
// attached holds the networks with device-info, and the networks without device-info that have a
// device from Multus or are listed in the pod's annotation. allocated holds the devices with a
// device plugin's file, the devices whose ID is a PCI address, and the devices of resource claims
// with metadata. It is searched only if the container's environment, its mounts or an attachment
// show that there is a device plugin or a DRA driver.
//
// The error concerns the directory. An attachment has the error of its own file.
func (s *Search) Find() (attached, allocated []Attachment, err error) {
	entries, err := s.entries(s.q.SandboxID)
	if err != nil {
		return nil, nil, err
	}
	if len(entries) == 0 && s.q.Networks == "" && len(s.env) == 0 && len(s.q.MetadataFiles) == 0 {
		return nil, nil, nil
	}
	if len(entries) > 0 || s.q.Networks != "" {
		s.addNetworks(entries)
	}
	for i := range s.attached {
		s.findOwner(&s.attached[i])
	}
	return s.attached, s.allocatedDevices(), nil
}

// Search finds the attachments of one container. It reads every source at most once, so that all
// its results agree.
type Search struct {
	owners
	envNotes []string
	devices  []device // devices in the networks' device-info, usable or not
}

// Search returns a search for the attachments of a container. ctx applies to every call on the
// Search.
func (f *Finder) Search(ctx context.Context, q Query) *Search {
	if f.opts.PluginsDir == "" {
		q.MetadataFiles = nil // without it, no metadata describes claims
	}
	s := &Search{owners: owners{Finder: f, q: &q, kubelet: &kubeletQuery{Finder: f, ctx: ctx, q: &q},
		files:   &deviceFiles{f, &q, map[[2]string]pluginFile{}, map[claimKey]claimFiles{}},
		records: map[string]interfaceRecord{}, resources: map[string]string{}}}
	s.env, s.envNotes = parseEnvironment(q.Env)
	return s
}

// ignored returns the note about a source that is ignored because of err.
func ignored(err error) string { return "ignored: " + diag.ErrorText(err) }

// addNetworks adds the pod's networks, from all sources.
func (s *Search) addNetworks(entries []deviceinfo.Entry) {
	rec := s.readMultusRecord()
	var common []string
	if rec.err != nil {
		common = append(common, ignored(rec.err))
		s.q.reportUnread(rec.err)
	}
	named, err := parseNetworks(s.q.Networks, s.q.Namespace)
	if err != nil {
		common = append(common, ignored(err))
	}
	for i := range entries {
		s.attached = append(s.attached, s.fromEntry(&entries[i], &rec, named))
	}
	s.addWithoutFile(&rec, named)
	// A note about a source applies to every attachment, unless the attachment already has it.
	for i := range s.attached {
		a := &s.attached[i]
		a.Notes = append(a.Notes, slices.DeleteFunc(slices.Clone(common), func(note string) bool {
			return slices.ContainsFunc(a.Notes, func(s string) bool { return strings.HasSuffix(s, note) })
		})...)
	}
	s.rejectInterfacesWithTwoFiles()
	s.rejectDevicesInTwoNetworks()
	slices.SortStableFunc(s.attached, func(a, b Attachment) int {
		return cmp.Or(strings.Compare(a.IfName, b.IfName), strings.Compare(a.Network, b.Network),
			strings.Compare(a.File, b.File))
	})
}

// fromEntry returns the attachment of a device-info file.
func (s *Search) fromEntry(e *deviceinfo.Entry, rec *multusRecord, named []selection) Attachment {
	a := Attachment{IfName: e.IfName, Info: e.Info, File: e.File, Err: e.Err, Owner: OwnerUnknown}
	d := rec.delegateOf(e.IfName)
	var note string
	if a.NetworkGuessed = d == nil || d.Name == ""; a.NetworkGuessed {
		a.NetworkGap = rec.describeGap(e.IfName)
	}
	if a.Network, note = s.networkOf(e, rec, named); note != "" {
		a.Notes = append(a.Notes, note)
	}
	if a.Err == nil {
		for _, w := range a.Info.Warnings {
			a.Notes = append(a.Notes, w.Error())
		}
	}
	if e.IfName == "" {
		return a // an error of the directory
	}
	s.recordDevice(a.Info)
	multus := Claim{Source: rec.file}
	if d != nil {
		a.DeviceID, a.Resource = d.DeviceID, d.Resource
	}
	s.checkResult(&a, d, &multus)
	s.checkDevice(&a, multus)
	return a
}

// readResultOf reads libcni's record of an attachment, and returns its device ID, or "", and its
// file.
func (s *Search) readResultOf(a *Attachment, d *delegate) (deviceID, file string) {
	conf := ""
	if d != nil {
		conf = cmp.Or(d.Conf.Name, d.ConfList.Name)
	}
	if conf == "" {
		// A network often has the same name as its configuration.
		_, conf, _ = strings.Cut(a.Network, "/")
	}
	if conf == "" || s.opts.MultusDir == "" {
		return "", ""
	}
	deviceID, record, err := readResult(s.host, s.opts.MultusDir, conf, s.q.SandboxID, a.IfName)
	if err != nil {
		a.Notes = append(a.Notes, ignored(err))
		s.q.reportUnread(err)
	}
	s.records[a.IfName] = record
	return deviceID, record.source
}

// checkResult compares the device ID with libcni's record of the attachment. If Multus has no
// record, checkResult copies the ID from libcni's.
func (s *Search) checkResult(a *Attachment, d *delegate, multus *Claim) {
	_, isDevice := deviceOf(a.Info)
	if !isDevice && len(s.q.MetadataFiles) == 0 {
		return // nothing to compare with the record
	}
	deviceID, file := s.readResultOf(a, d)
	switch {
	case deviceID == "", !isDevice:
	case a.DeviceID == "" && d == nil:
		a.DeviceID, multus.Source = deviceID, file
	case a.DeviceID != "" && canonicalID(a.DeviceID) != canonicalID(deviceID):
		a.reject(&ConflictError{On: deviceQuestion(a),
			First:  Claim{multus.Source, "device ID " + diag.Quote(a.DeviceID)},
			Second: Claim{file, "device ID " + diag.Quote(deviceID)}, Hint: hintRecreate})
	}
}

const hintRecreate = "delete the pod, so that its networks are attached again"

// deviceQuestion returns the disputed question for [ConflictError.On].
func deviceQuestion(a *Attachment) string {
	return "which device " + cmp.Or(a.IfName, diag.Quote(a.DeviceID)) + " is"
}

// checkDevice compares the device in a CNI plugin's file with the network's device in Multus'
// record, and with the device plugin's file of that device.
func (s *Search) checkDevice(a *Attachment, multus Claim) {
	if a.Err != nil || a.DeviceID == "" {
		return
	}
	dev, ok := deviceOf(a.Info)
	if !ok {
		s.checkSocket(a)
		return
	}
	if dev.contradictsID(a.DeviceID) {
		a.reject(&ConflictError{On: deviceQuestion(a), First: Claim{a.File, dev.String()},
			Second: Claim{multus.Source, "device ID " + diag.Quote(a.DeviceID)}, Hint: hintRecreate})
		return
	}
	if a.Resource == "" {
		return
	}
	p := s.files.readPlugin(a.Resource, a.DeviceID)
	if other, ok := deviceOf(p.info); ok && !other.isSame(dev) {
		a.reject(&ConflictError{On: deviceQuestion(a), First: Claim{a.File, dev.String()},
			Second: Claim{p.path, other.String()}, Hint: hintRecreate})
	} else if p.err != nil {
		a.Notes = append(a.Notes, ignored(p.err))
	}
}

// checkSocket compares the socket in a CNI plugin's file with the device plugin's file of the
// network's device. A different path belongs to another port.
func (s *Search) checkSocket(a *Attachment) {
	if a.Resource == "" || s.opts.OwnSocketTerms != nil && s.opts.OwnSocketTerms(a.Network, a.Resource) {
		return
	}
	own, ok := socketOf(a.Info)
	if !ok {
		return
	}
	p := s.files.readPlugin(a.Resource, a.DeviceID)
	if p.err != nil {
		a.Notes = append(a.Notes, ignored(p.err))
		return
	}
	allocated, ok := socketOf(p.info)
	if !ok || allocated.kind == own.kind && allocated.mode == own.mode &&
		s.host.IsSameFile(allocated.path, own.path) {
		return
	}
	a.reject(&ConflictError{On: "which socket " + a.IfName + " is", First: Claim{a.File, own.String()},
		Second: Claim{p.path, allocated.String() + " of the allocated device " +
			diag.Quote(a.DeviceID)}, Hint: hintSocket})
}

const hintSocket = "have the network's CNI plugin keep the device plugin's path and mode (with jackfield-cni: " +
	"remove device.path and device.mode or device.role " +
	"from its configuration), or configure a dialect for the network or resource"

// addWithoutFile adds the networks without a device-info file: networks with a device from Multus,
// and networks in the pod's annotation.
func (s *Search) addWithoutFile(rec *multusRecord, named []selection) {
	isAttached := func(network, ifName string) bool {
		return slices.ContainsFunc(s.attached, func(a Attachment) bool {
			return ifName != "" && a.IfName == ifName || ifName == "" && a.Network == network
		})
	}
	for i := range rec.delegates {
		d := &rec.delegates[i]
		isListed := d.DeviceID != "" || slices.ContainsFunc(named,
			func(n selection) bool { return n.network == d.Name })
		if isListed && !isAttached(d.Name, d.IfName) {
			s.attached = append(s.attached, s.fromDelegate(d, rec.file))
		}
	}
	for _, n := range named {
		isRecorded := slices.ContainsFunc(rec.delegates, func(d delegate) bool { return d.Name == n.network })
		if !isRecorded && !isAttached(n.network, n.ifName) {
			gap := rec.describeGap(n.network)
			s.attached = append(s.attached, Attachment{Network: n.network, NetworkGuessed: true, NetworkGap: gap,
				IfName: n.ifName, Owner: OwnerUnknown,
				Notes: []string{"the network has no device-info, and Multus' record of its attachment is not known: " +
					gap}})
		}
	}
}

// fromDelegate returns a network that Multus attached and that has no device-info file. If the
// kubelet allocated a device for it, the device plugin's file describes the network, because the
// network's file would be a copy of it (Device Information Specification, §4.2.1).
func (s *Search) fromDelegate(d *delegate, file string) Attachment {
	a := Attachment{Network: d.Name, IfName: d.IfName, DeviceID: d.DeviceID, Resource: d.Resource, Owner: OwnerUnknown}
	note := func(format string, args ...any) { a.Notes = append(a.Notes, fmt.Sprintf(format, args...)) }
	switch {
	case d.DeviceID == "":
		note("the network has no device-info: it has no device, or its CNI plugin writes none")
		return a
	case d.Resource == "":
		note("the network has no device-info; its device ID %s is from the pod's annotation and is ignored",
			diag.Quote(d.DeviceID))
		return a
	}
	found, ok := s.files.describeAllocated(d.Resource, d.DeviceID)
	if !ok {
		note("neither the network nor its device %s of resource %s has device-info", diag.Quote(d.DeviceID),
			diag.Quote(d.Resource))
		return a
	}
	note("the network has no device-info file; by Multus' record its device is %s of resource %s",
		diag.Quote(d.DeviceID), diag.Quote(d.Resource))
	a.Info, a.File, a.Err = found.Info, found.File, found.Err
	s.recordDevice(a.Info)
	a.Notes = append(a.Notes, found.Notes...)
	s.checkResult(&a, d, &Claim{Source: file})
	return a
}

// rejectInterfacesWithTwoFiles reports two device-info files of one interface as a conflict.
func (s *Search) rejectInterfacesWithTwoFiles() {
	rejectDuplicates(s.attached, func(a *Attachment) string {
		if a.File == "" {
			return ""
		}
		return a.IfName
	}, func(a *Attachment) (on string, c Claim) {
		return "which network " + a.IfName + " is", Claim{a.File, diag.Quote(a.Network)}
	}, hintRecreate)
}

// rejectDevicesInTwoNetworks reports one device in two networks as a conflict.
func (s *Search) rejectDevicesInTwoNetworks() {
	rejectDuplicates(s.attached, sysfsNameOf, func(a *Attachment) (on string, c Claim) {
		d, _ := deviceOf(a.Info)
		return "which interface " + d.String() + " is", Claim{a.File, a.IfName}
	}, hintRecreate)
}

// sysfsNameOf returns the name of an attachment's device in sysfs, "" for a socket.
func sysfsNameOf(a *Attachment) string {
	d, _ := deviceOf(a.Info)
	return d.sysfsName()
}

// rejectDuplicates makes all attachments with the same key, other than "", unusable, with a conflict. describe returns
// the disputed question and the answer of an attachment.
func rejectDuplicates(list []Attachment, keyOf func(a *Attachment) string,
	describe func(a *Attachment) (on string, c Claim), hint string) {
	first := make(map[string]int, len(list))
	conflicts := map[int]error{}
	for i := range list {
		key := keyOf(&list[i])
		j, twice := first[key]
		switch {
		case key == "":
		case !twice:
			first[key] = i
		default:
			on, claim := describe(&list[i])
			_, other := describe(&list[j])
			conflicts[i] = &ConflictError{On: on, First: other, Second: claim, Hint: hint}
			if conflicts[j] == nil {
				conflicts[j] = conflicts[i]
			}
		}
	}
	for i, err := range conflicts {
		list[i].reject(err)
	}
}

// recordDevice adds a network's device to s.devices.
func (s *Search) recordDevice(i *deviceinfo.Info) {
	if d, ok := deviceOf(i); ok {
		s.devices = append(s.devices, d)
	}
}

// reject makes an attachment unusable.
func (a *Attachment) reject(err error) { a.Err, a.Info = err, nil }
