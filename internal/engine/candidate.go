// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"

	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// candidate is one device, socket, mount or hook that the container can get.
type candidate struct {
	item Item
	// resolve adds the edits of the candidate to its delta, and changes nothing else. It is nil where the item has its
	// outcome already.
	resolve func(d *delta) error
	// device, if not nil, drops the candidate without an item if an earlier candidate delivered this device.
	device *attachment.Attachment
	// unchecked is why a source could not be read, see Plan.Unchecked.
	unchecked error
}

// source adds the candidates of one origin, in order.
type source func(in *inputs, add func(candidate)) error

// declined returns a candidate that is not resolved.
func declined(item Item, o Outcome, err error) candidate {
	item.SetOutcome(o, err)
	return candidate{item: item}
}

// addPassedDevices adds the CDI devices that the adapter passes, such as those of --cdi-device.
func addPassedDevices(in *inputs, add func(candidate)) error {
	for _, name := range in.req.CDIDevices {
		item := Item{Kind: KindCDI, Name: name, Request: cdiRequest(name), From: "the command line"}
		add(candidate{item: item, resolve: func(d *delta) error { return resolveCDI(in, d, name) }})
	}
	return nil
}

// addAnnotatedDevices adds the device requests of the annotations. A running container gets no CDI devices.
func addAnnotatedDevices(in *inputs, add func(candidate)) error {
	for i := range in.annotated.Devices {
		device := &in.annotated.Devices[i]
		if !in.running || device.Kind == annotation.Resource || device.Kind == annotation.NamedSocket {
			addRequestedDevice(in, device, add)
		}
	}
	return nil
}

// addRequestedDevice adds one device request of an annotation: an extended resource, or a CDI
// device or socket of the host by its name.
func addRequestedDevice(in *inputs, device *annotation.Device, add func(candidate)) {
	item := Item{Kind: KindCDI, Name: device.Name, Request: cdiRequest(device.Name),
		From: device.Key, Optional: device.Optional}
	resolve := resolveCDI
	switch device.Kind {
	case annotation.Resource:
		addResource(in, device, add)
		return
	case annotation.NamedSocket:
		item.Kind, item.Request, resolve = KindSocket, "socket "+strconv.Quote(device.Name), resolveNamedSocket
	}
	add(candidate{item: item, resolve: func(d *delta) error {
		return inAnnotation(device.Key, device.Position, resolve(in, d, device.Name))
	}})
}
