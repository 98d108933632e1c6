// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/status"
)

// numbersInterval is the time between two checks. The kernel gives the number of a removed device to the next device
// within milliseconds, and no event of sysfs reports that.
const numbersInterval = 10 * time.Second

// deviceNumbers finds device numbers of running containers that no longer lead to the device that the container was
// given. If such a number leads to another device, the container can open that device: the device cgroup grants
// numbers.
type deviceNumbers struct {
	*daemon
	containers *containerTable
	audit      *auditLog

	mu   sync.Mutex
	lost lostDevices
}

// lostDevices are the findings of one check.
type lostDevices struct {
	reused  []status.ReusedNumber
	removed []status.LostDevice
}

func newDeviceNumbers(d *daemon, containers *containerTable, audit *auditLog) *deviceNumbers {
	n := &deviceNumbers{daemon: d, containers: containers, audit: audit}
	d.runOn(nil, numbersInterval, n.check)
	return n
}

// listLost returns the findings of the last check.
func (n *deviceNumbers) listLost() lostDevices {
	n.mu.Lock()
	defer n.mu.Unlock()
	return lostDevices{slices.Clone(n.lost.reused), slices.Clone(n.lost.removed)}
}

// check compares the devices of all containers with the present ones, and reports each reused number once.
func (n *deviceNumbers) check() {
	defer n.recoverPanic(new(error), nil)
	known := n.listLost()
	var lost lostDevices
	for _, holder := range n.containers.listHolders() {
		for i := range holder.Devices {
			n.checkDevice(&holder, &holder.Devices[i], &known, &lost)
		}
	}
	slices.SortStableFunc(lost.reused, func(a, b status.ReusedNumber) int { return cmp.Compare(a.Title(), b.Title()) })
	slices.SortStableFunc(lost.removed, func(a, b status.LostDevice) int { return cmp.Compare(a.Title(), b.Title()) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = lost
}

// checkDevice adds a device to lost if its number leads to no device or to another one. known are the findings of the
// check before.
func (n *deviceNumbers) checkDevice(holder *engine.Holder, d *engine.HeldDevice, known, lost *lostDevices) {
	device := status.LostDevice{Namespace: holder.Namespace, Pod: holder.Pod, Container: holder.Container,
		ContainerID: holder.ContainerID, Path: d.Path, Number: d.Number(), Granted: d.Device.String(), Since: time.Now().UTC()}
	isSame := func(k *status.LostDevice) bool { return k.ContainerID == device.ContainerID && k.Path == device.Path }
	now, err := d.FindDevice(n.host)
	switch {
	case errdefs.IsNotFound(err):
		if at := slices.IndexFunc(known.removed, func(k status.LostDevice) bool { return isSame(&k) }); at >= 0 {
			device.Since = known.removed[at].Since
		}
		lost.removed = append(lost.removed, device)
	case err == nil && d.Device.IsAnother(&now):
		reused := status.ReusedNumber{LostDevice: device, Now: now.String()}
		at := slices.IndexFunc(known.reused, func(k status.ReusedNumber) bool {
			return isSame(&k.LostDevice) &&
				k.Now == reused.Now
		})
		if at >= 0 {
			reused.Since = known.reused[at].Since
		} else {
			n.report(&reused)
		}
		lost.reused = append(lost.reused, reused)
	}
}

// report writes a number to the log and the audit file.
func (n *deviceNumbers) report(r *status.ReusedNumber) {
	err := errors.New("a device number of the container leads to another device: delete the pod, and drain the node " +
		"before devices are re-created")
	n.log.WithFields(map[string]any{"namespace": r.Namespace, "pod": r.Pod, "container": r.Container,
		"containerID": r.ContainerID, "device": r.Path, "number": r.Number, "granted": r.Granted, "now": r.Now}).Error(err)
	record := n.containers.recordOf(r.ContainerID)
	if record == nil {
		return // it ended meanwhile
	}
	line := *record
	line.Since = r.Since
	n.audit.write(eventReused, fmt.Errorf("%w; %s (%s) was %s and is %s", err, r.Path, r.Number, r.Granted, r.Now), line,
		0)
}
