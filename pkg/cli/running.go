// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/staging"
)

// running is what the node has on record of a sandbox: its device-info, and
// what its containers were given.
type running struct {
	SandboxID  string     `json:"sandboxID,omitempty"`
	DeviceInfo []infoFile `json:"deviceInfo"`
	Containers []given    `json:"containers"`
}

// given is what a container was given when it was created.
type given struct {
	ID   string          `json:"id"`
	View json.RawMessage `json:"view,omitempty"` // its devices.json
}

const (
	maxView      = 1 << 20 // bytes of a devices.json
	maxPerRecord = 1 << 16 // names in a directory of records
)

// runtimeID is an ID that can be looked up as a file name.
var runtimeID = lazy(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

func (n *node) explainRunning(cmd *cobra.Command, env Env, out output, q question) error {
	for _, id := range []struct{ flag, value string }{{"--sandbox-id", q.sandboxID}, {"--container-id", q.containerID}} {
		if id.value != "" && !runtimeID().MatchString(id.value) {
			return usagef(cmd, "%s: found %q, want 1 to 128 of A-Z a-z 0-9 - _ . and no dot first", id.flag, id.value)
		}
	}
	host, cfg, err := n.load(cmd)
	if err != nil {
		return err
	}
	rec := records{host: host, stateDir: cfg.StateDir}
	r := running{SandboxID: q.sandboxID, DeviceInfo: []infoFile{}, Containers: []given{}}
	if q.containerID != "" {
		if err := rec.container(&r, q.containerID); err != nil {
			return err
		}
	} else if err := rec.containersOf(&r); err != nil {
		return err
	}
	if r.SandboxID != "" {
		files, err := dirsOf(host, cfg).networks(r.SandboxID)
		if err != nil {
			return err
		}
		r.DeviceInfo = append(r.DeviceInfo, files...)
	}
	if len(r.DeviceInfo) == 0 && len(r.Containers) == 0 {
		return fmt.Errorf("find sandbox %q: there is no device-info of it in %s, and %s holds no container of it that was given anything: %w",
			q.sandboxID, cfg.DeviceInfo.CNIDir, cfg.StateDir, errdefs.ErrNotFound)
	}
	return out.write(env.Stdout, r, r.print)
}

// records reads what pkg/staging wrote of containers; see there for the layout.
type records struct {
	host     hostfs.Root
	stateDir string
}

func (r records) sandboxes() string { return path.Join(r.stateDir, "sandboxes") }

// list gives the names in a directory of the state; none for one that is missing.
func (r records) list(dir string) ([]string, error) {
	names, err := r.host.ReadDir(dir, maxPerRecord)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("read the records in %q: %w", dir, err)
	}
	return names, nil
}

// container fills in one container and its sandbox.
func (r records) container(run *running, id string) error {
	sandboxes, err := r.list(r.sandboxes())
	if err != nil {
		return err
	}
	found := false
	for _, s := range sandboxes {
		if _, err := r.host.Lstat(path.Join(r.sandboxes(), s, id+containerSuffix)); err == nil {
			if run.SandboxID != "" && run.SandboxID != s {
				return fmt.Errorf("container %q is one of sandbox %q, not of %q: %w", id, s, run.SandboxID, errdefs.ErrInvalidArgument)
			}
			run.SandboxID, found = s, true
		}
	}
	if !found {
		return fmt.Errorf("find container %q: %s has no record of it: either it was given nothing, or it is not a container of this node: %w",
			id, r.stateDir, errdefs.ErrNotFound)
	}
	run.Containers = append(run.Containers, r.given(id))
	return nil
}

const containerSuffix = ".container"

// containersOf fills in the containers of the sandbox.
func (r records) containersOf(run *running) error {
	names, err := r.list(path.Join(r.sandboxes(), run.SandboxID))
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, containerSuffix); ok {
			run.Containers = append(run.Containers, r.given(id))
		}
	}
	return nil
}

func (r records) given(id string) given {
	g := given{ID: id}
	data, err := r.host.ReadFile(path.Join(staging.ContainerDir(r.stateDir, id), viewFile), maxView)
	if err == nil && json.Valid(data) {
		g.View = data
	}
	return g
}

func (r *running) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Sandbox %s\n", plain(r.SandboxID))
	t := &table{}
	for i := range r.DeviceInfo {
		f := &r.DeviceInfo[i]
		t.add(f.Interface, f.Network, f.Type, f.state(), f.detail())
	}
	t.write(&b, "  ")
	for _, c := range r.Containers {
		fmt.Fprintf(&b, "\nContainer %s was given\n", plain(c.ID))
		views := viewOf(c.View)
		t := &table{}
		for i := range views {
			v := &views[i]
			what := v.DeviceInfo.PCI.Address + v.DeviceInfo.VDPA.Path
			if socket := v.socket(); socket != "" {
				what = socket + ", made by the " + v.Jackfield.Creator
			}
			t.add(v.Interface, v.Name, v.DeviceInfo.Type, what)
		}
		t.write(&b, "  ")
		if len(views) == 0 {
			b.WriteString("  no attachment; what came of CDI devices is not on record\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
