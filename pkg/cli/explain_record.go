// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/explain"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/devices"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// sandboxRecord is what explain prints about a sandbox.
type sandboxRecord struct {
	SandboxID  string                    `json:"sandboxID,omitempty"`
	DeviceInfo []infoFile                `json:"deviceInfo"`
	Containers []explain.ContainerRecord `json:"containers"`
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
	found, err := explain.ReadRecord(local.host, local.cfg, q.sandboxID, q.containerID)
	if err != nil {
		return err
	}
	r := sandboxRecord{found.SandboxID, infoFiles(roleCNI, found.DeviceInfo), found.Containers}
	return out.writeResult(env, r, r.formatText)
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
