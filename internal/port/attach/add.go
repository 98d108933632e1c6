// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"fmt"
	"path"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Add works in four steps, and a crash can end it after each of them: it plans, writes the record,
// creates directory, addresses, port and device-info, and reports to the runtime. Because the
// record comes first, Remove finds everything that an interrupted Add created.
//
// addition is one Add of an attachment: its plan, and the parts that exist already.
type addition struct {
	*Attachment
	st     *record.Store
	record record.Record
	dir    deviceinfo.CNIDir // of the device-info file
	before *deviceinfo.Info  // copied by the runtime from the device plugin's file; nil for none
	socket string            // path on the host, or "@name"
	port   *vswitch.Port     // nil for none
	peer   vswitch.Driver    // of the vswitch of the port
	policy *policy.Policy    // of the node; set together with port

	damaged   bool // the device-info file exists, is unreadable, and belongs to no device plugin
	allocated bool // the attachment has its addresses
	wrote     bool // the device-info file may have been written
}

// Add creates the attachment. It plans everything before it creates anything. With a port, Add
// returns by the end of LimitTime if allocate and report respect their contexts: addresses and port
// can use a part of that time, and the rest is reserved for undoing.
//
// allocate returns the attachment's addresses. It runs after the socket directory was created, and
// its context leaves time for Release. If allocate fails, it has undone its own work. report hands
// the attachment to the runtime, with a device-info that lacks the interface's information. If
// report fails, Add removes the attachment.
func (t *Attachment) Add(ctx context.Context, allocate func(context.Context) (Addresses, error),
	report func(info *deviceinfo.Info) error) error {
	ctx, cancel := t.LimitTime(ctx)
	defer cancel()
	a, err := t.planAdd()
	if err != nil {
		return err
	}
	if a.st, err = record.Open(t.Root, t.StateDir); err != nil {
		return recordError(t.Interface, err)
	}
	defer a.st.Close()
	t.Reached.report("planned")
	if a.peer != nil {
		// Probe first: if the switch is down, Add records, allocates and creates nothing.
		if err := t.switchError(a.peer.Probe(ctx)); err != nil {
			return err
		}
	}
	if err := a.createRecord(); err != nil {
		return err
	}
	t.Reached.report("recorded")
	err = a.createAttachment(ctx, allocate)
	if err == nil {
		t.Reached.report("created")
		err = report(a.record.Info)
	}
	if err == nil {
		t.Reached.report("reported")
		return nil
	}
	// The runtime gets the error of Add. If undoing fails, the record stays for Remove.
	m := &removal{t, a.st}
	if undo := a.undoAdd(ctx, m); undo != nil {
		undo = JoinErrors(undo, m.markLeftover())
		fmt.Fprintf(t.Log, "%s: undo ADD: %v\n", t.Program, undo)
	}
	return err
}

// planAdd checks every precondition of an Add. It changes nothing on the host.
func (t *Attachment) planAdd() (*addition, error) {
	a := &addition{Attachment: t, record: record.Record{Key: t.Key, IPAM: t.IPAM, Adapter: t.Adapter,
		Netns: t.Netns, NetnsID: record.FindNetns(t.Root, t.Netns), Namespace: t.Namespace, Pod: t.Pod,
		Chained: t.Chained, InfoDir: t.InfoDir}}
	if err := a.planInfoFile(); err != nil {
		return nil, err
	}
	if err := a.planAddSocket(); err != nil {
		return nil, err
	}
	if err := a.planPort(); err != nil {
		return nil, err
	}
	var err error
	if a.record.Info, err = a.deviceInfo(); err != nil {
		return nil, err
	}
	if dir := a.record.Directory; dir != "" {
		a.record.SocketDir, a.record.ClaimsDir, a.record.Claimed = t.SocketDir, t.ClaimsDir, claimedPath(t.Root, t.SocketDir,
			dir)
	}
	a.record.InfoKept = a.before != nil
	return a, nil
}

// PlanSocket returns the device-info that Add would write for a socket that no device plugin has
// described. It returns nil for a device that is not a socket. It reads no files.
func (t *Attachment) PlanSocket() (*deviceinfo.Info, error) {
	if !t.Device.IsSocket() {
		return nil, nil
	}
	a := &addition{Attachment: t}
	if err := a.planAddSocket(); err != nil {
		return nil, err
	}
	return a.deviceInfo()
}

// InfoFileName returns the name that Multus would choose for an attachment's device-info file.
// Attachments outside Kubernetes are in the namespace default.
func InfoFileName(k record.Key, namespace string) (string, error) {
	return deviceinfo.CNIFileName(cmp.Or(namespace, "default"), k.Network, k.ContainerID, k.Interface)
}

// planInfoFile determines the device-info file. The runtime's choice comes before the name that
// Multus would choose (Device Information Specification, §4.2 and §5.1.2).
func (a *addition) planInfoFile() error {
	full := a.InfoFile
	if full == "" {
		name, err := InfoFileName(a.Key, a.Namespace)
		if err != nil {
			return Fail(codeConfig, "invalid network configuration",
				"cannot derive the name of the device-info file: %v", err)
		}
		full = path.Join(a.InfoDir, name)
	}
	err := checkInfoDir(a.Root, a.InfoDir)
	if err != nil {
		return err
	}
	a.dir = deviceinfo.CNIDir{Root: a.Root.Dir(), Dir: a.InfoDir}
	if a.record.InfoFile, err = a.dir.Name(full); err != nil {
		return Fail(codeConfig, "invalid network configuration: "+
			a.Source.Name("runtimeConfig."+deviceinfo.CapabilityKey)+": "+diag.Quote(full), "%v", err)
	}
	if !isInfoFileOf(a.Key, a.record.InfoFile) {
		key := a.Source.Name("runtimeConfig." + deviceinfo.CapabilityKey)
		return Fail(codeConfig, "invalid network configuration: "+key+": "+diag.Quote(full),
			"%sinvalid value %s: %s; remove the key from the network, because the runtime sets it",
			a.Source.Place(key), diag.Quote(full), infoFileRule(a.Key))
	}
	a.before, err = a.dir.Read(a.record.InfoFile)
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case errdefs.IsInvalidArgument(err):
		a.damaged = true
		return a.checkDamagedInfo(err)
	case err != nil:
		return ioError("device-info", err)
	case a.before.Type != a.Device.Kind:
		return a.contradiction("type", string(a.Device.Kind), string(a.before.Type), full, "type")
	}
	return nil
}

// checkDamagedInfo returns an error for an unreadable device-info file unless Add can overwrite it.
// err describes the damage. If the network has a device of a device plugin, the file is the copy of
// that plugin's file and must stay. The runtime can be writing the file that it names, so there
// only an empty file is overwritten.
func (a *addition) checkDamagedInfo(err error) error {
	if len(a.DeviceIDs) > 0 {
		return Fail(codeConfig, "invalid device-info file",
			"%v; it should be the copy of the device plugin's file: remove it, and re-create the pod", err)
	}
	st, statErr := a.Root.Lstat(path.Join(a.InfoDir, a.record.InfoFile))
	if statErr == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && (a.InfoFile == "" || st.Size == 0) {
		return nil
	}
	return Fail(codeConfig, "invalid device-info file",
		"%v; the runtime names the file, and the network has no device of a device plugin: remove the file, "+
			"or wait until the runtime has written it", err)
}

// createAttachment creates the planned and recorded attachment.
func (a *addition) createAttachment(ctx context.Context,
	allocate func(context.Context) (Addresses, error)) error {
	// Status makes the same check, so that it predicts this error.
	dir, err := openDir(a.Root, "deviceInfoDir", a.InfoDir, 0o755)
	if err != nil {
		return err
	}
	dir.Close()
	if dir := a.record.Directory; dir != "" {
		if err := a.claimAndCreateSocketDir(dir); err != nil {
			// The existing directory belongs to something else, so Remove must keep it.
			if AsError(err).Code == CodeExists {
				a.record.Directory = ""
			}
			return err
		}
	}
	a.Reached.report("directory created")
	ctx, cancel := limitCreation(ctx)
	defer cancel()
	addresses, err := allocate(ctx)
	if err != nil {
		return err
	}
	a.allocated = true
	a.Reached.report("addresses allocated")
	if a.port != nil {
		if err := a.createPort(ctx, addresses); err != nil {
			return err
		}
	}
	info := a.record.Info.Clone()
	if err := setInterfaceInfo(info, a.interfaceInfo(addresses)); err != nil {
		return err
	}
	if a.damaged {
		if err := a.dir.Remove(a.record.InfoFile); err != nil {
			return ioError("device-info", err)
		}
	}
	err = a.dir.Update(a.record.InfoFile, func(current *deviceinfo.Info) (*deviceinfo.Info, error) {
		if (current != nil) != (a.before != nil) {
			return nil, Fail(codeLater, "try again later", "device-info file %q was created or removed meanwhile",
				a.record.InfoFile)
		}
		a.wrote = true
		return info, nil
	})
	if err != nil && AsError(err).Code != codeIO {
		return AsError(err)
	}
	return ioError("device-info", err)
}

// interfaceInfo returns the interface's information for the device-info file and devices.json.
func (a *addition) interfaceInfo(addresses Addresses) attachment.InterfaceInfo {
	n := attachment.InterfaceInfo{Network: a.Network, MAC: a.MAC, IPs: addresses.IPs, Gateway: addresses.Gateways,
		DNS: addresses.DNS, Bandwidth: a.Bandwidth, Labels: a.Labels}
	if a.port != nil {
		// VPP does not report queues.
		n.MTU, n.Queues = a.port.MTU, cmp.Or(a.port.Queues, a.record.Port.Queues)
	}
	return n
}

// undoAdd undoes an Add that failed.
func (a *addition) undoAdd(ctx context.Context, m *removal) error {
	if !a.wrote { // the current file was not written by this Add
		a.record.InfoKept = true
	}
	return m.removeAll(ctx, &a.record, func() error {
		var errs []error
		if a.allocated {
			errs = append(errs, m.releaseAddresses(a.Key, &a.record))
		}
		if a.wrote && a.before != nil {
			errs = append(errs, a.dir.Write(a.record.InfoFile, a.before))
		}
		return JoinErrors(errs...)
	})
}
