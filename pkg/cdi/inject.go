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
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// injectDevices adds the edits of devices to an OCI spec, which is unchanged after an error.
func injectDevices(host hostfs.Root, s *Snapshot, spec *rspec.Spec, names []string) (unresolved []string, err error) {
	if spec == nil {
		return nil, fmt.Errorf("the OCI spec is nil: %w", errdefs.ErrInvalidArgument)
	}
	var (
		devices []*Device
		errs    []error
	)
	for _, name := range names {
		device, err := s.Device(name)
		if err != nil {
			unresolved, errs = append(unresolved, name), append(errs, err)
			continue
		}
		devices = append(devices, device)
	}
	if len(errs) > 0 {
		return unresolved, errors.Join(errs...)
	}
	set, err := editsOf(host, devices, spec)
	if err != nil {
		return nil, err
	}
	return nil, applyEdits(spec, set)
}

// editsOf returns the edits of devices for a container with an OCI spec.
func editsOf(host hostfs.Root, devices []*Device, spec *rspec.Spec) (*edit.Set, error) {
	builder := edit.NewBuilder(oci.Existing(spec))
	adder := cdiedits.Adder{Host: host, Builder: builder}
	if spec.Process != nil {
		adder.UID, adder.GID = spec.Process.User.UID, spec.Process.User.GID
	}
	files, names := map[string]bool{}, map[string]bool{}
	for _, d := range devices {
		if names[d.Name] {
			continue
		}
		names[d.Name] = true
		origin := edit.Origin{Source: edit.CDI, Request: "CDI device " + strconv.Quote(d.Name), File: d.File,
			Field: "containerEdits"}
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

// applyEdits edits the JSON text of an OCI spec, so that the spec is unchanged if the edits cannot be applied.
func applyEdits(spec *rspec.Spec, set *edit.Set) error {
	versioned := *spec
	if versioned.Version == "" {
		versioned.Version = rspec.Version // ParseConfig requires one
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
