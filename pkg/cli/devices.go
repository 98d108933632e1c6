// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// offer is what a node has to give.
type offer struct {
	Dirs       []cdiDir      `json:"cdiDirs"`
	Devices    []cdiDevice   `json:"cdiDevices"`
	Conflicts  []cdiConflict `json:"cdiConflicts"`
	Refused    []cdiRefused  `json:"cdiRefused"`
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
}

// cdiConflict is a device that files of one directory declare more than once.
type cdiConflict struct {
	Name   string   `json:"name"`
	Files  []string `json:"files"`
	Usable bool     `json:"usable"` // a directory of higher priority declares it once
}

// cdiRefused is a file of which no device can be used.
type cdiRefused struct {
	File     string    `json:"file"`
	Kind     string    `json:"kind,omitempty"`    // as far as it could be read
	Devices  []string  `json:"devices,omitempty"` // as far as they could be read
	Findings []finding `json:"findings"`
}

func devicesCommand(env Env) *cobra.Command {
	var (
		n     node
		out   output
		watch bool
	)
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show what this node offers: CDI devices, and device-info of device plugins",
		Long: "devices shows the CDI devices of this node and their files, the devices that cannot be used because two files of\n" +
			"one directory declare them, the CDI files that are refused, with the first reason, and the device-info files of\n" +
			"device plugins. CDI_SPEC_DIRS takes the place of the configuration's cdi.specDirs.\n\n" +
			"With --watch it prints a line for everything there is (+), and then one for each change as it comes (+ new,\n" +
			"- gone, ~ changed), until it is interrupted; with -o json a JSON object a line.",
		Example: "  jackfield devices\n  jackfield devices -o json\n  CDI_SPEC_DIRS=/tmp/cdi jackfield devices --watch",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			host, cfg, err := n.load(cmd)
			if err != nil {
				return err
			}
			registry, err := n.registry(env, host, cfg, watch)
			if err != nil {
				return err
			}
			defer registry.Close()
			dirs := dirsOf(host, cfg)
			if watch {
				w := watcher{registry: registry, dirs: dirs, out: env.Stdout, json: out.json()}
				return w.run(cmd.Context())
			}
			plugins, err := dirs.plugins()
			if err != nil {
				return err
			}
			o := offerOf(registry.Snapshot())
			o.DeviceInfo = plugins
			return out.write(env.Stdout, o, o.print)
		},
	}
	n.flags(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "print each change as it comes, until interrupted")
	out.flag(cmd)
	return cmd
}

func offerOf(s *cdiregistry.Snapshot) *offer {
	o := &offer{Dirs: []cdiDir{}, Devices: []cdiDevice{}, Conflicts: []cdiConflict{}, Refused: []cdiRefused{}, DeviceInfo: []infoFile{}}
	for _, d := range s.Dirs() {
		dir := cdiDir{Path: d.Path, Missing: d.Missing}
		if d.Err != nil {
			dir.Error = d.Err.Error()
		}
		o.Dirs = append(o.Dirs, dir)
	}
	for _, name := range s.Devices() {
		if d, err := s.Device(name); err == nil {
			o.Devices = append(o.Devices, cdiDevice{Name: d.Name, Kind: d.Kind, File: d.File, Annotations: d.Annotations})
		}
	}
	for _, f := range s.Files() {
		o.fault(f)
	}
	return o
}

// fault adds what is wrong with a file. A conflict is an error of each of its
// files, and told once.
func (o *offer) fault(f cdiregistry.File) {
	var bad *cdiregistry.SpecError
	if errors.As(f.Err, &bad) {
		o.Refused = append(o.Refused, cdiRefused{File: f.Path, Kind: f.Kind, Devices: f.Devices, Findings: fromCDI(f.Path, bad.Diagnostics)})
		return
	}
	for _, c := range conflictsIn(f.Err) {
		if c.Files[0] == f.Path {
			o.Conflicts = append(o.Conflicts, cdiConflict{Name: c.Name, Files: c.Files, Usable: c.Shadowed})
		}
	}
}

// conflictsIn takes a joined error apart.
func conflictsIn(err error) []*cdiregistry.ConflictError {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []*cdiregistry.ConflictError
		for _, e := range many.Unwrap() {
			out = append(out, conflictsIn(e)...)
		}
		return out
	}
	var c *cdiregistry.ConflictError
	if errors.As(err, &c) && len(c.Files) > 0 {
		return []*cdiregistry.ConflictError{c}
	}
	return nil
}

func (o *offer) print(w io.Writer) error {
	var b strings.Builder
	if len(o.Devices) == 0 {
		fmt.Fprintf(&b, "No CDI devices in %s.\n", plain(o.dirNames()))
	} else {
		t := &table{}
		t.add("CDI DEVICE", "FILE")
		for _, d := range o.Devices {
			t.add(d.Name, d.File)
		}
		t.write(&b, "")
	}
	o.printFaults(&b)
	if len(o.DeviceInfo) > 0 {
		b.WriteString("\nDevice-info of device plugins:\n")
		t := &table{}
		for i := range o.DeviceInfo {
			f := &o.DeviceInfo[i]
			t.add(f.Type, f.what(), f.state(), f.detail())
		}
		t.write(&b, "  ")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (o *offer) printFaults(b *strings.Builder) {
	section := func(title string) func(string) {
		first := true
		return func(line string) {
			if first {
				fmt.Fprintf(b, "\n%s:\n", title)
				first = false
			}
			fmt.Fprintf(b, "  %s\n", plain(line))
		}
	}
	line := section("CDI devices in conflict (keep each in one file)")
	for _, c := range o.Conflicts {
		line(c.text())
	}
	line = section("CDI files that are refused")
	for _, r := range o.Refused {
		line(r.text())
	}
	line = section("CDI directories that cannot be read")
	for _, d := range o.Dirs {
		if d.Error != "" {
			line(d.Error)
		}
	}
}

func (c *cdiConflict) text() string {
	s := c.Name + ": " + strings.Join(c.Files, ", ")
	if c.Usable {
		s += " (a directory of higher priority has it once, and that one is used)"
	}
	return s
}

func (r *cdiRefused) text() string {
	s := r.Findings[0].String()
	if n := len(r.Findings) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

func (o *offer) dirNames() string {
	names := make([]string, len(o.Dirs))
	for i, d := range o.Dirs {
		names[i] = d.Path
		if d.Missing {
			names[i] += " (missing)"
		}
	}
	return strings.Join(names, ", ")
}
