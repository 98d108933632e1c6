// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// SandboxRecord is the record of a host about a sandbox: its device-info, and the injections into its
// containers.
type SandboxRecord struct {
	SandboxID  string
	DeviceInfo []deviceinfo.Entry
	Containers []ContainerRecord
}

// ContainerRecord has the edits that were injected into a container at its creation.
type ContainerRecord struct {
	ID   string          `json:"id"`
	View json.RawMessage `json:"view,omitempty"` // its devices.json
	// Error is why its devices.json cannot be read; "" also where it has none.
	Error string `json:"error,omitempty"`
}

// ReadRecord returns the record of a sandbox, or of one container with the device-info of its sandbox. One
// of the IDs can be "".
func ReadRecord(host hostfs.Root, cfg *config.Config, sandboxID, containerID string) (*SandboxRecord, error) {
	// An ID that is not found is reported below, with everything that was searched.
	whole, _, err := FindSandbox(host, cfg, sandboxID)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	r := SandboxRecord{SandboxID: cmp.Or(whole, sandboxID), Containers: []ContainerRecord{}}
	ids := []string{containerID}
	if containerID != "" {
		r.SandboxID, err = findSandboxOf(host, cfg, containerID, r.SandboxID)
	} else {
		ids, err = staging.RecordedContainers(host, cfg.StateDir, r.SandboxID)
	}
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		r.Containers = append(r.Containers, readContainer(host, cfg, id))
	}
	if r.DeviceInfo, err = (deviceinfo.CNIDir{Root: host.Dir(),
		Dir: cfg.DeviceInfo.CNIDir}).ReadSandbox(r.SandboxID); err != nil {
		return nil, err
	}
	if len(r.DeviceInfo) == 0 && len(r.Containers) == 0 {
		return nil, fmt.Errorf("find sandbox %q: there is no device-info of it in %s, and %s has no record of its "+
			"containers: %w",
			r.SandboxID, cfg.DeviceInfo.CNIDir, cfg.StateDir, errdefs.ErrNotFound)
	}
	return &r, nil
}

// readContainer reads the devices.json that a container received. A container without one has no view.
func readContainer(host hostfs.Root, cfg *config.Config, id string) ContainerRecord {
	c := ContainerRecord{ID: id}
	switch view, err := engine.ReadView(host, cfg.StateDir, id); {
	case errdefs.IsNotFound(err):
	case err != nil:
		c.Error = diag.ErrorText(err)
	case !json.Valid(view):
		c.Error = "its " + engine.ViewFile + " in " + edit.ContainerDir(cfg.StateDir, id) + " is not valid JSON"
	default:
		c.View = view
	}
	return c
}

// HasErrors reports whether something on record cannot be read.
func (r *SandboxRecord) HasErrors() bool {
	return slices.ContainsFunc(r.Containers, func(c ContainerRecord) bool { return c.Error != "" })
}

// findSandboxOf returns the sandbox of a container. It must be the one of the caller, unless that is "".
func findSandboxOf(host hostfs.Root, cfg *config.Config, id, sandboxID string) (string, error) {
	sandboxes, err := staging.RecordedSandboxes(host, cfg.StateDir, id)
	if err != nil {
		return "", err
	}
	if len(sandboxes) == 0 {
		return "", fmt.Errorf("find container %q: %s has no record of it: nothing was injected into it, or it is not a "+
			"container of this node: %w",
			id, cfg.StateDir, errdefs.ErrNotFound)
	}
	for _, s := range sandboxes {
		if sandboxID = cmp.Or(sandboxID, s); s != sandboxID {
			return "", fmt.Errorf("container %q is one of sandbox %q, not of %q: %w", id, s, sandboxID,
				errdefs.ErrInvalidArgument)
		}
	}
	return sandboxID, nil
}

// wholeID is the length of a sandbox ID of containerd and CRI-O. Their tools print the beginning.
const wholeID = 64

// FindSandbox returns the whole ID of the sandbox whose ID is the one of --sandbox-id, or begins with it; "" for "".
// A whole ID need not be on record: most pods have no network attachment with device-info.
func FindSandbox(host hostfs.Root, cfg *config.Config, id string) (whole string, recorded bool, err error) {
	if id == "" {
		return "", true, nil
	}
	if err := hostfs.CheckID(id); err != nil {
		return "", false, fmt.Errorf("--sandbox-id: %w", err)
	}
	if own, err := (deviceinfo.CNIDir{Root: host.Dir(), Dir: cfg.DeviceInfo.CNIDir}).ReadSandbox(id); err != nil ||
		len(own) > 0 {
		return id, true, err
	}
	if containers, err := staging.RecordedContainers(host, cfg.StateDir, id); err != nil || len(containers) > 0 {
		return id, true, err
	}
	if len(id) >= wholeID {
		return id, false, nil
	}
	files, err := deviceinfo.CNIDir{Root: host.Dir(), Dir: cfg.DeviceInfo.CNIDir}.List()
	if err != nil {
		return "", false, err
	}
	var found []string
	for _, f := range files {
		if _, s, _ := name.SplitInfoFile(path.Base(f.File)); strings.HasPrefix(s, id) && !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0:
		return "", false, fmt.Errorf("--sandbox-id: invalid value %q: no sandbox with device-info in %s has an ID with "+
			"this prefix: %w", id, cfg.DeviceInfo.CNIDir, errdefs.ErrNotFound)
	case len(found) > 1:
		return "", false, fmt.Errorf("--sandbox-id: invalid value %q: %d sandboxes have an ID with this prefix, such as "+
			"%.13s and %.13s; give more characters: %w",
			id, len(found), found[0], found[1], errdefs.ErrInvalidArgument)
	}
	return found[0], true, nil
}
