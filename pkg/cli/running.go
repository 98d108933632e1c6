// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
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

// maxView bounds a devices.json, in bytes.
const maxView = 1 << 20

// findSandbox returns the whole ID of the sandbox whose ID is id or begins with it. A whole ID need not be on record: most
// pods have no network attachment with device-info.
func findSandbox(env Env, host hostfs.Root, cfg *config.Config, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	if err := hostfs.CheckID(id); err != nil {
		return "", fmt.Errorf("--sandbox-id: %w", err)
	}
	dirs := dirsOf(host, cfg)
	if own, err := dirs.networks(id); err != nil || len(own) > 0 {
		return id, err
	}
	if recorded, err := staging.Recorded(host, cfg.StateDir, id); err == nil && len(recorded) > 0 {
		return id, nil
	}
	if len(id) >= wholeID {
		env.say("note: there is no device-info of sandbox %s in %s", id, cfg.DeviceInfo.CNIDir)
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
	switch len(found) {
	case 0:
		return "", &hinted{
			err:  fmt.Errorf("--sandbox-id: found %q: no sandbox with device-info in %s has an ID that begins so: %w", id, cfg.DeviceInfo.CNIDir, errdefs.ErrNotFound),
			hint: "the whole ID is taken as it is: crictl pods --no-trunc",
		}
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("--sandbox-id: found %q: %d sandboxes have an ID that begins so, %s and %s among them; give more of it: %w",
		id, len(found), shortID(found[0]), shortID(found[1]), errdefs.ErrInvalidArgument)
}

func (n *node) explainRunning(cmd *cobra.Command, env Env, out output, q question) error {
	for _, id := range []struct{ flag, value string }{{"--sandbox-id", q.sandboxID}, {"--container-id", q.containerID}} {
		if id.value != "" && hostfs.CheckID(id.value) != nil {
			return usagef(cmd, "%s: %w", id.flag, hostfs.CheckID(id.value))
		}
	}
	host, cfg, err := n.load(cmd)
	if err != nil {
		return err
	}
	if q.sandboxID != "" {
		// One that is not found is reported below, with what else was searched.
		id, err := findSandbox(Env{Stderr: io.Discard}, host, cfg, q.sandboxID)
		switch {
		case err == nil:
			q.sandboxID = id
		case !errdefs.IsNotFound(err):
			return err
		}
	}
	r := running{SandboxID: q.sandboxID, DeviceInfo: []infoFile{}, Containers: []given{}}
	if q.containerID != "" {
		if err := r.container(host, cfg.StateDir, q.containerID); err != nil {
			return err
		}
	} else if err := r.containersOf(host, cfg.StateDir); err != nil {
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

// container fills in one container and its sandbox.
func (r *running) container(host hostfs.Root, stateDir, id string) error {
	sandboxes, err := staging.SandboxesOf(host, stateDir, id)
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		if r.SandboxID != "" && r.SandboxID != s {
			return fmt.Errorf("container %q is one of sandbox %q, not of %q: %w", id, s, r.SandboxID, errdefs.ErrInvalidArgument)
		}
		r.SandboxID = s
	}
	if len(sandboxes) == 0 {
		return fmt.Errorf("find container %q: %s has no record of it: either it was given nothing, or it is not a container of this node: %w",
			id, stateDir, errdefs.ErrNotFound)
	}
	r.Containers = append(r.Containers, givenTo(host, stateDir, id))
	return nil
}

// containersOf fills in the containers of the sandbox.
func (r *running) containersOf(host hostfs.Root, stateDir string) error {
	ids, err := staging.Recorded(host, stateDir, r.SandboxID)
	for _, id := range ids {
		r.Containers = append(r.Containers, givenTo(host, stateDir, id))
	}
	return err
}

func givenTo(host hostfs.Root, stateDir, id string) given {
	g := given{ID: id}
	data, err := host.ReadFile(path.Join(staging.ContainerDir(stateDir, id), resolve.ViewFile), maxView)
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
