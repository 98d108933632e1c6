// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// inventory has the devices that a node offers.
type inventory struct {
	Dirs       []cdiDir      `json:"cdiDirs"`
	Devices    []cdiDevice   `json:"cdiDevices"`
	Conflicts  []cdiConflict `json:"cdiConflicts"`
	Refused    []cdiRefused  `json:"cdiRefused"`
	Ignored    []cdiIgnored  `json:"cdiIgnored"`
	Shadowed   []cdiShadowed `json:"cdiShadowed"`
	DeviceInfo []infoFile    `json:"deviceInfo"`
}

// cdiDir is a directory of CDI files, in rising priority.
type cdiDir struct {
	Path    string `json:"path"`
	Missing bool   `json:"missing,omitempty"`
	Error   string `json:"error,omitempty"`
}

// cdiDevice is a device that a container can ask for.
type cdiDevice struct {
	Name        string            `json:"name"` // vendor.com/class=name
	Kind        string            `json:"kind"`
	File        string            `json:"file"`
	Annotations map[string]string `json:"annotations,omitempty"` // of the device, in its file

	content string // its edits; for --watch
}

// cdiConflict is a device that files of one directory declare more than once.
type cdiConflict struct {
	Name   string   `json:"name"`
	Files  []string `json:"files"`
	Usable bool     `json:"usable"` // a directory of higher priority declares it once
}

// cdiRefused is a file whose devices cannot be used.
type cdiRefused struct {
	File     string    `json:"file"`
	Kind     string    `json:"kind,omitempty"`    // as far as it could be read
	Devices  []string  `json:"devices,omitempty"` // as far as they could be read
	Findings diag.List `json:"findings"`
}

// cdiIgnored is a CDI file that is not read, because of the end of its name.
type cdiIgnored struct {
	File    string   `json:"file"`
	Kind    string   `json:"kind"`
	Devices []string `json:"devices"`
	Reason  string   `json:"reason"`
}

// cdiShadowed is a CDI file with devices that a file of higher priority declares, too.
type cdiShadowed struct {
	File    string   `json:"file"`
	By      string   `json:"by"`
	Devices []string `json:"devices"`
	Reason  string   `json:"reason"`
}

func devicesCommand(env Env) *cobra.Command {
	var (
		n     hostFlags
		out   output
		watch bool
	)
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show what this node offers: CDI devices, and device-info of device plugins",
		Long: "devices shows the CDI devices of this node and their files, the devices that\n" +
			"cannot be used because two files of one directory declare them, the refused CDI\n" +
			"files with the first reason, CDI files that are not read because of their names,\n" +
			"and the device-info files of device plugins. The variable CDI_SPEC_DIRS replaces\n" +
			"the configuration's cdi.specDirs. The exit status is 3 when a directory cannot be\n" +
			"read.\n" +
			"\n" +
			"With --watch it prints a line for each of these (+), and then a line for each\n" +
			"change (+ new, - gone, ~ changed), until it is interrupted. With -o json it prints\n" +
			"a JSON object a line.",
		Example: "  jackfield devices\n  jackfield devices -o json\n  CDI_SPEC_DIRS=/tmp/cdi jackfield devices --watch",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && out.format == formatYAML {
				return usagef(cmd, "devices: --watch: invalid format yaml: must be text or json")
			}
			registry, local, err := n.openRegistry(cmd, env, watch)
			if err != nil {
				return err
			}
			defer registry.Close()
			if watch {
				w := watcher{registry: registry, node: local, out: env.Stdout, json: !out.isText()}
				return repeat(cmd.Context(), watchInterval, w.printChanges)
			}
			o, err := readInventory(registry, local)
			if err != nil {
				return err
			}
			if len(o.Devices) == 0 && out.isText() {
				env.message("no CDI devices in %s", o.dirNames())
			}
			return answerError(out.writeResult(env, o, o.formatText), false, len(o.unreadable()) > 0)
		},
	}
	n.addFlags(cmd)
	addWatchFlag(cmd, &watch, "one line for each")
	out.addFlag(cmd)
	return cmd
}

func readInventory(cache *cdi.Cache, node localNode) (*inventory, error) {
	plugins, err := node.listPluginFiles()
	if err != nil {
		return nil, err
	}
	o := &inventory{Dirs: []cdiDir{}, Devices: []cdiDevice{}, Conflicts: []cdiConflict{}, Refused: []cdiRefused{},
		Ignored: []cdiIgnored{}, Shadowed: []cdiShadowed{}, DeviceInfo: plugins}
	s := cache.Snapshot()
	for _, d := range s.Dirs() {
		dir := cdiDir{Path: d.Path, Missing: d.Missing}
		if d.Err != nil {
			dir.Error = diag.ErrorText(d.Err)
		}
		o.Dirs = append(o.Dirs, dir)
	}
	for _, name := range s.Devices() {
		if d, err := s.Device(name); err == nil {
			content, _ := json.Marshal([]any{d.SpecEdits, d.Edits})
			o.Devices = append(o.Devices, cdiDevice{Name: d.Name, Kind: d.Kind, File: d.File, Annotations: d.Annotations,
				content: string(content)})
		}
	}
	for _, f := range s.Files() {
		if bad, ok := errors.AsType[*cdi.SpecError](f.Err); ok {
			o.Refused = append(o.Refused, cdiRefused{File: f.Path, Kind: f.Kind, Devices: f.Devices,
				Findings: diag.InFile(f.Path, bad)})
		}
		for _, c := range f.Conflicts {
			if c.Files[0] == f.Path { // each of the files has the conflict
				o.Conflicts = append(o.Conflicts, cdiConflict{Name: c.Name, Files: c.Files, Usable: c.Shadowed})
			}
		}
	}
	for _, f := range s.Ignored() {
		o.Ignored = append(o.Ignored, cdiIgnored{File: f.Path, Kind: f.Kind, Devices: f.Devices, Reason: f.String()})
	}
	for _, f := range s.Shadowed() {
		o.Shadowed = append(o.Shadowed, cdiShadowed{File: f.Path, By: f.By, Devices: f.Devices, Reason: f.String()})
	}
	return o, nil
}

// unreadable returns the directories that cannot be read.
func (o *inventory) unreadable() []cdiDir {
	return slices.DeleteFunc(slices.Clone(o.Dirs), func(d cdiDir) bool { return d.Error == "" })
}

func (o *inventory) formatText() string {
	var b strings.Builder
	if len(o.Devices) > 0 {
		var t table
		t.addRow("CDI DEVICE", "FILE")
		for _, d := range o.Devices {
			t.addRow(d.Name, d.File)
		}
		b.WriteString(t.formatText(""))
	}
	o.writeFaults(&b)
	if len(o.DeviceInfo) > 0 {
		b.WriteString("\nDevice-info of device plugins:\n")
		var t table
		for i := range o.DeviceInfo {
			f := &o.DeviceInfo[i]
			t.addRow(f.Type, f.ownerText(), f.stateText(), f.detailText())
		}
		b.WriteString(t.formatText("  "))
	}
	return strings.TrimPrefix(b.String(), "\n")
}

func (o *inventory) writeFaults(b *strings.Builder) {
	writeSection(b, "CDI devices in conflict (keep each in one file)", o.Conflicts, cdiConflict.formatText)
	writeSection(b, "CDI files that are refused", o.Refused, func(r cdiRefused) string { return r.Findings.Summary() })
	writeSection(b, "CDI files that are not read", o.Ignored, func(f cdiIgnored) string { return f.Reason })
	writeSection(b, "CDI files that another file shadows", o.Shadowed, func(f cdiShadowed) string { return f.Reason })
	writeSection(b, "CDI directories that cannot be read", o.unreadable(), func(d cdiDir) string { return d.Error })
}

// writeSection writes a title and a line for each element of a list, nothing for none.
func writeSection[T any](b *strings.Builder, title string, list []T, line func(T) string) {
	if len(list) > 0 {
		fmt.Fprintf(b, "\n%s:\n", title)
	}
	for _, element := range list {
		fmt.Fprintf(b, "  %s\n", plain(line(element)))
	}
}

func (c cdiConflict) formatText() string {
	s := c.Name + ": " + strings.Join(c.Files, ", ")
	if c.Usable {
		s += " (a directory of higher priority has it once, and that one is used)"
	}
	return s
}

func (o *inventory) dirNames() string {
	names := make([]string, len(o.Dirs))
	for i, d := range o.Dirs {
		names[i] = d.Path
		switch {
		case d.Missing:
			names[i] += " (missing)"
		case d.Error != "":
			names[i] += " (cannot be read)"
		}
	}
	return strings.Join(names, ", ")
}
