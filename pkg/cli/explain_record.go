// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/devices"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
)

// sandboxRecord is what the node has on record about a sandbox: its device-info, and what was
// injected into its containers.
type sandboxRecord struct {
	SandboxID  string            `json:"sandboxID,omitempty"`
	DeviceInfo []infoFile        `json:"deviceInfo"`
	Containers []containerRecord `json:"containers"`
}

// containerRecord is what was injected into a container at its creation.
type containerRecord struct {
	ID   string          `json:"id"`
	View json.RawMessage `json:"view,omitempty"` // its devices.json
}

// maxView bounds a devices.json, in bytes.
const maxView = 1 << 20

// findSandbox returns the whole ID of the sandbox whose ID is id or begins with it. A whole ID need
// not be on record: most pods have no network attachment with device-info.
func (n localNode) findSandbox(env Env, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	if err := hostfs.CheckID(id); err != nil {
		return "", fmt.Errorf("--sandbox-id: %w", err)
	}
	dirs := n.infoDirs()
	if own, err := dirs.networks(id); err != nil || len(own) > 0 {
		return id, err
	}
	if recorded, err := staging.RecordedContainers(n.host, n.cfg.StateDir, id); err == nil && len(recorded) > 0 {
		return id, nil
	}
	if len(id) >= wholeID {
		env.message("note: there is no device-info of sandbox %s in %s", id, n.cfg.DeviceInfo.CNIDir)
		return id, nil
	}
	files, err := dirs.networks("")
	if err != nil {
		return "", err
	}
	var found []string
	for i := range files {
		if s := files[i].SandboxID; strings.HasPrefix(s, id) && !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0:
		return "", &hintedError{
			err:  fmt.Errorf("--sandbox-id: found %q: no sandbox with device-info in %s has an ID that begins so: %w", id, n.cfg.DeviceInfo.CNIDir, errdefs.ErrNotFound),
			hint: "the whole ID is taken as it is: crictl pods --no-trunc",
		}
	case len(found) > 1:
		return "", fmt.Errorf("--sandbox-id: found %q: %d sandboxes have an ID that begins so, %s and %s among them; give more of it: %w",
			id, len(found), shortID(found[0]), shortID(found[1]), errdefs.ErrInvalidArgument)
	}
	return found[0], nil
}

func (n *hostFlags) explainRecord(cmd *cobra.Command, env Env, out output, q explainOptions) error {
	for _, id := range []struct{ flag, value string }{{"--sandbox-id", q.sandboxID}, {"--container-id", q.containerID}} {
		if id.value != "" && hostfs.CheckID(id.value) != nil {
			return usagef(cmd, "%s: %w", id.flag, hostfs.CheckID(id.value))
		}
	}
	local, err := n.openNode(cmd)
	if err != nil {
		return err
	}
	// An ID that is not found is reported below, with everything that was searched.
	if id, err := local.findSandbox(Env{Stderr: io.Discard}, q.sandboxID); err == nil {
		q.sandboxID = id
	} else if !errdefs.IsNotFound(err) {
		return err
	}
	r := sandboxRecord{SandboxID: q.sandboxID, DeviceInfo: []infoFile{}, Containers: []containerRecord{}}
	ids := []string{q.containerID}
	if q.containerID != "" {
		r.SandboxID, err = local.findSandboxOf(q.containerID, q.sandboxID)
	} else {
		ids, err = staging.RecordedContainers(local.host, local.cfg.StateDir, r.SandboxID)
	}
	if err != nil {
		return err
	}
	for _, id := range ids {
		r.Containers = append(r.Containers, local.readContainerRecord(id))
	}
	files, err := local.infoDirs().networks(r.SandboxID)
	if err != nil {
		return err
	}
	r.DeviceInfo = append(r.DeviceInfo, files...)
	if len(r.DeviceInfo) == 0 && len(r.Containers) == 0 {
		return fmt.Errorf("find sandbox %q: there is no device-info of it in %s, and %s has no record of its containers: %w",
			q.sandboxID, local.cfg.DeviceInfo.CNIDir, local.cfg.StateDir, errdefs.ErrNotFound)
	}
	return out.writeResult(env, r, r.formatText)
}

// findSandboxOf returns the sandbox of a container. It must be the one of the caller, unless that is "".
func (n localNode) findSandboxOf(id, sandboxID string) (string, error) {
	sandboxes, err := staging.RecordedSandboxes(n.host, n.cfg.StateDir, id)
	if err != nil {
		return "", err
	}
	if len(sandboxes) == 0 {
		return "", fmt.Errorf("find container %q: %s has no record of it: nothing was injected into it, or it is not a container of this node: %w",
			id, n.cfg.StateDir, errdefs.ErrNotFound)
	}
	for _, s := range sandboxes {
		if sandboxID = cmp.Or(sandboxID, s); s != sandboxID {
			return "", fmt.Errorf("container %q is one of sandbox %q, not of %q: %w", id, s, sandboxID, errdefs.ErrInvalidArgument)
		}
	}
	return sandboxID, nil
}

func (n localNode) readContainerRecord(id string) containerRecord {
	g := containerRecord{ID: id}
	data, err := n.host.ReadFile(path.Join(staging.ContainerDir(n.cfg.StateDir, id), resolve.ViewFile), maxView)
	if err == nil && json.Valid(data) {
		g.View = data
	}
	return g
}

func (r *sandboxRecord) formatText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Sandbox %s\n", plain(r.SandboxID))
	var t table
	for i := range r.DeviceInfo {
		f := &r.DeviceInfo[i]
		t.addRow(f.Interface, f.Network, f.Type, f.stateText(), f.detailText())
	}
	b.WriteString(t.formatText("  "))
	for _, c := range r.Containers {
		fmt.Fprintf(&b, "\nInjected into container %s\n", plain(c.ID))
		view, _ := devices.Parse(c.View)
		var t table
		for i := range view {
			d := &view[i]
			what := d.PCIAddress()
			if info, err := deviceinfo.Parse(d.DeviceInfo, ""); err == nil && info.VDPA != nil {
				what = info.VDPA.Path
			}
			if socket := d.Socket(); socket != "" {
				what = socket + ", created by the " + d.Jackfield.CreatedBy
			}
			t.addRow(d.Interface, d.Name, d.Type(), what)
		}
		b.WriteString(t.formatText("  "))
		if len(view) == 0 {
			b.WriteString("  no attachment; injected CDI devices are not on record\n")
		}
	}
	return b.String()
}
