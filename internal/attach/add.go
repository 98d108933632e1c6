// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/cnirecord"
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/vswitch"
)

// addPlan is what one Add is about to create.
type addPlan struct {
	record cnirecord.Record
	file   deviceinfo.CNIFile
	before *deviceinfo.Info // device-info that the runtime copied from the device plugin's; nil for none
	info   *deviceinfo.Info
	socket socketPlan
	port   *vswitch.Port  // nil for none
	driver vswitch.Driver // of the port
	wrote  bool           // the device-info file may have been written
}

// Add creates an attachment. It plans everything before it creates anything. With a port, it returns by the end of
// LimitTime, if steps do: addresses and port may take a part of that time, and the rest is for undoing.
func Add(ctx context.Context, host *Host, attachment *Attachment, steps Steps) error {
	ctx, cancel := attachment.LimitTime(ctx)
	defer cancel()
	j := &job{Attachment: attachment, Host: host, ctx: ctx}
	a, err := j.planAdd()
	if err != nil {
		return err
	}
	st, err := cnirecord.Open(j.Root, j.StateDir)
	if err != nil {
		return j.recordError(err)
	}
	defer st.Close()
	j.reportStep("planned")
	if err := j.createRecord(st, &a.record); err != nil {
		return err
	}
	j.reportStep("recorded")
	err = j.createAttachment(st, a, steps)
	if err == nil {
		j.reportStep("created")
		err = steps.Report(a.info)
	}
	if err == nil {
		j.reportStep("reported")
		return nil
	}
	// The runtime gets the error of Add. If undoing fails, the record stays for Remove.
	if undo := j.undoAdd(st, a, steps); undo != nil {
		undo = JoinErrors(undo, j.markLeftover(st))
		fmt.Fprintf(j.Log, "%s: undo ADD: %v\n", j.Program, undo)
	}
	return err
}

// planAdd checks everything that an Add depends on.
func (j *job) planAdd() (*addPlan, error) {
	a := &addPlan{}
	if err := j.planInfoFile(a); err != nil {
		return nil, err
	}
	if err := j.planAddSocket(a); err != nil {
		return nil, err
	}
	if err := j.planPort(a); err != nil {
		return nil, err
	}
	var err error
	if a.info, err = j.deviceInfo(a); err != nil {
		return nil, err
	}
	a.record = cnirecord.Record{Key: j.Key, Adapter: j.Adapter, Netns: j.Netns, Namespace: j.Namespace, Pod: j.Pod, Chained: j.Chained,
		InfoDir: j.InfoDir, InfoFile: a.record.InfoFile, InfoKept: a.before != nil, Info: a.info}
	if a.socket.dir != "" {
		a.record.SocketDir, a.record.Directory = j.SocketDir, a.socket.dir
		a.record.ClaimsDir, a.record.Claimed = j.ClaimsDir, j.claimedPath(a.socket.dir)
	}
	return a, nil
}

// PlanSocket returns the device-info that Add would write for a socket of which no device plugin has written any. It
// returns nil for another device. It reads nothing.
func PlanSocket(host *Host, attachment *Attachment) (*deviceinfo.Info, error) {
	j := &job{Attachment: attachment, Host: host}
	if !j.Device.IsSocket() {
		return nil, nil
	}
	a := &addPlan{}
	if err := j.planAddSocket(a); err != nil {
		return nil, err
	}
	return j.deviceInfo(a)
}

// InfoFileName returns the name of an attachment's device-info file that Multus would choose. Attachments outside
// Kubernetes are in the namespace default.
func InfoFileName(k cnirecord.Key, namespace string) (string, error) {
	if namespace == "" {
		namespace = "default"
	}
	return deviceinfo.CNIFileName(namespace, k.Network, k.ContainerID, k.Interface)
}

// planInfoFile determines the device-info file: the one that the runtime names, or the one that Multus would
// name (Device Information Specification, §4.2 and §5.1.2).
func (j *job) planInfoFile(a *addPlan) error {
	full := j.InfoFile
	if full == "" {
		name, err := InfoFileName(j.Key, j.Namespace)
		if err != nil {
			return Fail(codeConfig, "invalid network configuration", "no device-info file can be named: %v", err)
		}
		full = path.Join(j.InfoDir, name)
	}
	var err error
	if a.file, err = (deviceinfo.CNIDir{Root: j.Root, Dir: j.InfoDir}).File(full); err != nil {
		return Fail(codeConfig, "invalid network configuration: "+j.Source.Name("runtimeConfig."+deviceinfo.CapabilityKey)+": "+diag.Quote(full), "%v", err)
	}
	a.record.InfoFile = path.Base(full)
	a.before, err = a.file.Read()
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case errdefs.IsInvalidArgument(err):
		return Fail(codeConfig, "invalid device-info of the device plugin", "%v", err)
	case err != nil:
		return ioError("device-info", err)
	case a.before.Type != j.Device.Kind:
		return j.contradiction("type", string(j.Device.Kind), string(a.before.Type), full, "type")
	}
	return nil
}

// createAttachment creates what was planned and recorded.
func (j *job) createAttachment(st *cnirecord.Store, a *addPlan, steps Steps) error {
	// Status makes the same check.
	dir, err := openDir(j.Root, "deviceInfoDir", j.InfoDir, 0o755)
	if err != nil {
		return err
	}
	dir.Close()
	if a.socket.dir != "" {
		if err := j.claimAndCreateSocketDir(a.socket.dir); err != nil {
			// The existing directory is not this attachment's, and its Remove must not remove it.
			if AsError(err).Code == CodeExists {
				a.socket.dir = ""
			}
			return err
		}
	}
	j.reportStep("directory created")
	ctx, cancel := j.limitCreation()
	defer cancel()
	var addresses Addresses
	if steps.Allocate != nil {
		if addresses, err = steps.Allocate(ctx); err != nil {
			return err
		}
	}
	j.reportStep("addresses allocated")
	if a.port != nil {
		if err := j.createPort(ctx, st, a, addresses); err != nil {
			return err
		}
	}
	info := a.info.Clone()
	if err := setInterfaceInfo(info, j.interfaceInfo(a, addresses)); err != nil {
		return err
	}
	err = a.file.Update(func(current *deviceinfo.Info) (*deviceinfo.Info, error) {
		if (current != nil) != (a.before != nil) {
			return nil, Fail(codeLater, "try again later", "device-info file %q was created or removed meanwhile", a.record.InfoFile)
		}
		a.wrote = true
		return info, nil
	})
	if err != nil && AsError(err).Code != codeIO {
		return AsError(err)
	}
	return ioError("device-info", err)
}

// interfaceInfo returns what the device-info file and devices.json say about the interface.
func (j *job) interfaceInfo(a *addPlan, addresses Addresses) attachment.InterfaceInfo {
	n := attachment.InterfaceInfo{Network: j.Network, MAC: j.MAC, IPs: addresses.IPs, Gateway: addresses.Gateways, DNS: addresses.DNS, Bandwidth: j.Bandwidth, Labels: j.Labels}
	if a.port != nil {
		// VPP does not report queues.
		n.MTU, n.Queues = a.port.MTU, cmp.Or(a.port.Queues, a.record.Port.Queues)
	}
	return n
}

// undoAdd undoes an Add that failed.
func (j *job) undoAdd(st *cnirecord.Store, a *addPlan, steps Steps) error {
	if !a.wrote { // the current file is not from this Add
		a.record.InfoKept = true
	}
	if a.socket.dir == "" {
		a.record.Directory = ""
	}
	return j.removeAll(st, &a.record, func() error {
		var errs []error
		if steps.Release != nil {
			errs = append(errs, steps.Release())
		}
		if a.wrote && a.before != nil {
			errs = append(errs, a.file.Write(a.before))
		}
		return JoinErrors(errs...)
	})
}
