// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/edit/cdiedits"
	"github.com/jackfield/jackfield/internal/edit/oci"
)

// Inject adds the edits of devices to an OCI spec: the edits of each spec file once, before
// those of its first device, and each device once. Device nodes get type, numbers and mode from
// the host where the spec file leaves them out.
//
// Where devices cannot be found, Inject returns their names, and an error that says why for
// each. After an error the OCI spec is as it was. On success *spec is replaced: a pointer that
// the caller has into it, such as spec.Process, may be outdated.
func (c *Cache) Inject(spec *rspec.Spec, names ...string) (unresolved []string, err error) {
	if spec == nil {
		return nil, fmt.Errorf("inject CDI devices: the OCI spec is nil: %w", errdefs.ErrInvalidArgument)
	}
	var (
		devices []*Device
		errs    []error
	)
	snapshot := c.current()
	for _, name := range names {
		device, err := snapshot.Device(name)
		if err != nil {
			unresolved, errs = append(unresolved, name), append(errs, err)
			continue
		}
		devices = append(devices, device)
	}
	if len(errs) > 0 {
		return unresolved, fmt.Errorf("inject CDI devices: %w", errors.Join(errs...))
	}
	set, err := c.editsOf(devices, spec)
	if err == nil {
		err = applyEdits(spec, set)
	}
	if err != nil {
		return nil, fmt.Errorf("inject CDI devices: %w", err)
	}
	return nil, nil
}

// editsOf returns the edits of devices for a container with an OCI spec.
func (c *Cache) editsOf(devices []*Device, spec *rspec.Spec) (*edit.Set, error) {
	builder := edit.NewBuilder(oci.Existing(spec))
	adder := cdiedits.Adder{Host: c.host, Builder: &builder}
	if spec.Process != nil {
		adder.UID, adder.GID = spec.Process.User.UID, spec.Process.User.GID
	}
	files, names := map[string]bool{}, map[string]bool{}
	for _, d := range devices {
		if names[d.Name] {
			continue
		}
		names[d.Name] = true
		origin := edit.Origin{Source: edit.CDI, Request: "CDI device " + strconv.Quote(d.Name), File: d.File, Field: "containerEdits"}
		if !files[d.File] {
			files[d.File] = true
			if err := adder.Add(d.SpecEdits, origin); err != nil {
				return nil, fmt.Errorf("%s: %w", origin.Request, err)
			}
		}
		origin.Field = "devices[" + strconv.Itoa(d.Index) + "].containerEdits"
		if err := adder.Add(d.Edits, origin); err != nil {
			return nil, fmt.Errorf("%s: %w", origin.Request, err)
		}
	}
	return builder.Set(), nil
}

// applyEdits edits an OCI spec by way of its JSON, so that nothing of it is changed where the edits
// cannot be applied.
func applyEdits(spec *rspec.Spec, set *edit.Set) error {
	versioned := *spec
	if versioned.Version == "" {
		versioned.Version = rspec.Version // ParseConfig asks for one
	}
	text, err := json.Marshal(&versioned)
	if err != nil {
		return err
	}
	config, err := oci.ParseConfig("OCI spec", text)
	if err != nil {
		return err
	}
	if text, err = config.Apply(set); err != nil {
		return err
	}
	var edited rspec.Spec
	if err := json.Unmarshal(text, &edited); err != nil {
		return err
	}
	edited.Version = spec.Version
	*spec = edited
	return nil
}
