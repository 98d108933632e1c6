// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/status"
)

// numbersInterval is the time between two checks. The kernel gives the number of a removed device to the next device
// within milliseconds, and no event of sysfs reports that.
const numbersInterval = 10 * time.Second

// deviceNumbers finds device numbers of running containers that have come to lead to another device than the container
// was given. The container can open that device: the device cgroup grants numbers.
type deviceNumbers struct {
	*daemon
	containers *containerTable
	audit      *auditLog

	mu     sync.Mutex
	reused []status.ReusedNumber
}

func newDeviceNumbers(d *daemon, containers *containerTable, audit *auditLog) *deviceNumbers {
	n := &deviceNumbers{daemon: d, containers: containers, audit: audit}
	d.runOn(nil, numbersInterval, n.check)
	return n
}

// listReused returns the numbers that the last check found.
func (n *deviceNumbers) listReused() []status.ReusedNumber {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.reused)
}

// check compares the devices of all containers with the present ones, and reports each difference once.
func (n *deviceNumbers) check() {
	defer n.recoverPanic(new(error), nil)
	known := n.listReused()
	var reused []status.ReusedNumber
	for _, holder := range n.containers.listHolders() {
		for i := range holder.Devices {
			r, ok := n.checkDevice(&holder, &holder.Devices[i])
			if !ok {
				continue
			}
			at := slices.IndexFunc(known, func(k status.ReusedNumber) bool {
				return k.ContainerID == r.ContainerID && k.Path == r.Path && k.Now == r.Now
			})
			if at >= 0 {
				r.Since = known[at].Since
			} else {
				n.report(&r)
			}
			reused = append(reused, r)
		}
	}
	slices.SortStableFunc(reused, func(a, b status.ReusedNumber) int { return cmp.Compare(a.Title(), b.Title()) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reused = reused
}

// checkDevice reports whether a number leads to another device now. A number that leads to none harms nobody.
func (n *deviceNumbers) checkDevice(holder *engine.Holder, d *engine.HeldDevice) (status.ReusedNumber, bool) {
	now, err := d.FindDevice(n.host)
	if err != nil || !d.Device.IsAnother(&now) {
		return status.ReusedNumber{}, false
	}
	return status.ReusedNumber{Namespace: holder.Namespace, Pod: holder.Pod, Container: holder.Container,
		ContainerID: holder.ContainerID, Path: d.Path, Number: d.Number(), Granted: d.Device.String(), Now: now.String(),
		Since: time.Now().UTC()}, true
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
	n.audit.write(eventReused, fmt.Errorf("%w; %s (%s) was %s and is %s", err, r.Path, r.Number, r.Granted, r.Now), line, 0)
}
