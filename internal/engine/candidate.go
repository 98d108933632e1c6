// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"

	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// candidate is one thing that the container may get.
type candidate struct {
	item Item
	// resolve adds the edits of the candidate to its delta, and changes nothing else. It is nil where the item has its
	// outcome already.
	resolve func(d *delta) error
	// device, if not nil, is dropped without an item if an earlier candidate delivered this device.
	device *attachment.Attachment
	// unchecked is why a source could not be read, see Plan.Unchecked.
	unchecked error
}

// source lists the candidates of one origin, in order.
type source func(*inputs) ([]candidate, error)

// declined returns a candidate that is not resolved.
func declined(item Item, o Outcome, err error) candidate {
	item.SetOutcome(o, err)
	return candidate{item: item}
}

// passedDevices lists the CDI devices that the adapter passes, such as those of --cdi-device.
func passedDevices(in *inputs) (list []candidate, _ error) {
	for _, name := range in.req.CDIDevices {
		item := Item{Kind: KindCDI, Name: name, Request: cdiRequest(name), From: "the command line"}
		list = append(list, candidate{item: item, resolve: func(d *delta) error { return resolveCDI(in, d, name) }})
	}
	return list, nil
}

// annotatedDevices lists the device requests of the annotations. A running container gets no CDI devices.
func annotatedDevices(in *inputs) (list []candidate, _ error) {
	for _, device := range in.annotated.Devices {
		if !in.running || device.Kind == annotation.Resource || device.Kind == annotation.NamedSocket {
			list = append(list, deviceCandidates(in, device)...)
		}
	}
	return list, nil
}

// deviceCandidates returns the candidates of one device request of an annotation: an extended resource, or a CDI
// device or socket of the host by its name.
func deviceCandidates(in *inputs, device annotation.Device) []candidate {
	item := Item{Kind: KindCDI, Name: device.Name, Request: cdiRequest(device.Name), From: device.Key, Optional: device.Optional}
	resolve := resolveCDI
	switch device.Kind {
	case annotation.Resource:
		return resourceCandidates(in, device)
	case annotation.NamedSocket:
		item.Kind, item.Request, resolve = KindSocket, "socket "+strconv.Quote(device.Name), resolveNamedSocket
	}
	return []candidate{{item: item, resolve: func(d *delta) error {
		return inAnnotation(device.Key, device.Position, resolve(in, d, device.Name))
	}}}
}
