// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// maxFile bounds a device plugin's file, in bytes.
const maxFile = 64 << 10

// Resource gives the devices of an extended resource that were allocated to the
// container, or the one with the given ID, as the device plugin's files describe
// them (Device Information Specification, §4.1). A resource or device that was
// not allocated to it is errdefs.ErrNotFound.
func (f *Finder) Resource(ctx context.Context, q Query, resource, id string) ([]Attachment, error) {
	ids := allocation(q.Env).of(resource)
	if len(ids) == 0 {
		return nil, fmt.Errorf("resource %q: the kubelet allocated none of it to the container (no variable %s); request it under resources.limits: %w",
			resource, pcideviceEnv+envKey(resource), errdefs.ErrNotFound)
	}
	if id != "" {
		found := ""
		for _, have := range ids {
			if strings.EqualFold(have, id) {
				found = have
			}
		}
		if found == "" {
			return nil, fmt.Errorf("resource %q: device %q was not allocated to the container; allocated are %s: %w",
				resource, id, strings.Join(ids, ", "), errdefs.ErrNotFound)
		}
		ids = []string{found}
	}
	out := make([]Attachment, 0, len(ids))
	for _, id := range ids {
		out = append(out, f.device(resource, id))
	}
	return out, nil
}

// device reads the device plugin's file of one device.
func (f *Finder) device(resource, id string) Attachment {
	a := Attachment{Resource: resource, DeviceID: id, Owner: OwnedHere}
	name, err := deviceinfo.DPFileName(resource, id)
	if err != nil {
		a.Err = err
		return a
	}
	a.File = path.Join(f.opts.DPDir, name)
	data, err := f.host.ReadFile(a.File, maxFile)
	if err != nil {
		a.Err = fmt.Errorf("read device-info of device %q of resource %q: %w", id, resource, err)
		return a
	}
	a.Info, a.Err = deviceinfo.Parse(data, a.File)
	return a
}

func (as allocations) of(resource string) []string {
	key := envKey(resource)
	for _, a := range as {
		if a.key == key {
			return a.ids
		}
	}
	return nil
}

// envKey is how sriov-network-device-plugin writes a resource's name in the name
// of a variable: upper case, "/" and "." as "_".
func envKey(resource string) string {
	return strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(resource))
}
