// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// CRIODropIn is CRI-O's drop-in that turns NRI on. Its name sorts after the names of other files.
const CRIODropIn = CRIOFile + ".d/99-jackfield-nri.conf"

const (
	// containerdDropIn is the name of the file that turns NRI on in a directory that containerd imports.
	containerdDropIn = "99-jackfield-nri.toml"

	dropInHeader      = "# Written by jackfield enable-nri.\n"
	nriTableHeader    = "[plugins.\"" + NRIPlugin + "\"]"
	containerdNRIOn   = nriTableHeader + "\n  disable = false\n"
	containerdPlugins = "  disable_connections = false\n"
	crioNRIOn         = "[crio.nri]\nenable_nri = true\n"
	crioPlugins       = "nri_disable_connections = false\n"
)

// NRIPlan turns NRI on in a runtime's configuration so that plugins can connect. It consists of a
// drop-in, or of changes by hand. It is empty if nothing is to be done.
type NRIPlan struct {
	OnIn    string   // the file that turns NRI on; "" if it is on by default
	DropIn  *DropIn  // a missing file that the runtime would read
	ByHand  []string // changes of existing files, each with its file and line
	Missing []string // files that the configuration imports and that do not exist
}

// DropIn is a file to write beside a runtime's configuration.
type DropIn struct{ File, Text string }

// readWith returns the files as if the drop-in existed.
func (d *DropIn) readWith(files Files) Files {
	files.dropIn = d
	return files
}

// PlanContainerdNRI returns the plan for containerd with a configuration file. onByDefault is set
// for a containerd with NRI on by default, and not for an unknown version.
func PlanContainerdNRI(host hostfs.Root, file string, onByDefault bool) (*NRIPlan, error) {
	files := Files{Host: host}
	conf, err := ReadContainerd(files, file)
	if errdefs.IsNotFound(err) {
		conf, err = &Containerd{files: []containerdFile{{name: file}}}, nil
	}
	if err != nil {
		return nil, err
	}
	onByDefault = onByDefault || conf.version > 2 || servesNRI(host, conf.Get("plugins", NRIPlugin, "socket_path"))
	plan := &NRIPlan{OnIn: conf.NRIDisable().File, Missing: conf.Missing, ByHand: conf.changesByHand(onByDefault)}
	if len(plan.ByHand) > 0 {
		if plan.DropIn = conf.dropIn(files, onByDefault); plan.DropIn != nil {
			plan.ByHand = nil
		}
	}
	return plan, nil
}

// servesNRI reports whether the runtime listens on its NRI socket. Then NRI is on unless the
// configuration turns it off.
func servesNRI(host hostfs.Root, socket Setting) bool {
	bound, err := IsSocketBound(host, cmp.Or(socket.Value, NRISocket))
	return err == nil && bound
}

// changesByHand returns the changes of existing files that turn NRI on and permit connections.
// There are none if plugins can connect already.
func (c *Containerd) changesByHand(onByDefault bool) []string {
	var out []string
	add := func(s Setting, format string, args ...any) {
		out = append(out, s.Place()+": "+fmt.Sprintf(format, args...))
	}
	for _, s := range c.DisabledBy {
		add(s, "remove %s from disabled_plugins", NRIPlugin)
	}
	disable := c.NRIDisable()
	for _, s := range []Setting{disable, c.NRIConnections()} {
		if s.IsNot("false") {
			add(s, "set %s = false in place of %s", s.Path[len(s.Path)-1], s.Written)
		}
	}
	main := c.files[0]
	switch version := newSettings(main.document).Get("version"); {
	case onByDefault:
	case len(main.document) > 0 && !slices.Contains([]string{"2", "3", "4"}, version.Value):
		out = append(out, main.name+": convert it with `containerd config migrate`: version 1 has no keys for NRI")
	case c.ShadowedBy().IsSet(), !disable.IsSet() && c.lastNRITable.IsSet():
		add(c.lastNRITable, "set disable = false in %s of this file: containerd 1.7 reads this table only from the "+
			"last file that has it",
			nriTableHeader)
	case !disable.IsSet():
		lines := containerdNRIOn
		if len(main.document) == 0 {
			lines = "version = 2\n\n" + lines
		}
		out = append(out, main.name+": add these lines:\n\n"+lines)
	}
	return out
}

// dropIn returns a drop-in that turns NRI on, in a directory that the main file imports, or nil if
// that is impossible.
func (c *Containerd) dropIn(files Files, onByDefault bool) *DropIn {
	if !onByDefault && c.lastNRITable.IsSet() {
		// containerd 1.7 would ignore the other keys of the table.
		return nil
	}
	main := c.files[0]
	text := fmt.Sprintf("%sversion = %d\n\n%s%s", dropInHeader, max(c.version, 2), containerdNRIOn, containerdPlugins)
	for _, pattern := range newSettings(main.document).Get("imports").List {
		d := &DropIn{path.Join(path.Dir(absoluteImport(path.Dir(main.name), pattern)), containerdDropIn), text}
		if _, err := files.Host.Lstat(d.File); !errdefs.IsNotFound(err) {
			continue
		}
		with, err := ReadContainerd(d.readWith(files), main.name)
		if err == nil && with.NRIDisable().File == d.File && len(with.changesByHand(onByDefault)) == 0 {
			return d
		}
	}
	return nil
}

// PlanCRIONRI returns the plan for CRI-O, with a file as drop-in. onByDefault is set for a CRI-O
// with NRI on by default, and not for an unknown version.
func PlanCRIONRI(host hostfs.Root, file string, onByDefault bool) (*NRIPlan, error) {
	files := Files{Host: host}
	conf := ReadCRIO(files, CRIOFile)
	if err := errors.Join(conf.Faults...); err != nil {
		return nil, err
	}
	on, blocks := conf.Get("crio", "nri", "enable_nri"), conf.NRIBlocks()
	onByDefault = onByDefault || servesNRI(host, conf.Get("crio", "nri", "nri_listen"))
	if len(blocks) == 0 && (onByDefault || on.IsSet()) {
		return &NRIPlan{OnIn: on.File}, nil
	}
	d := &DropIn{file, dropInHeader + crioNRIOn + crioPlugins}
	_, err := host.Lstat(file)
	switch {
	case err == nil:
	case !errdefs.IsNotFound(err):
		return nil, err
	default:
		with := ReadCRIO(d.readWith(files), CRIOFile)
		if !slices.Contains(with.Files, file) {
			return nil, fmt.Errorf("CRI-O does not read %s: a drop-in must be in %s.d: %w",
				file, CRIOFile, errdefs.ErrInvalidArgument)
		}
		if blocks = with.NRIBlocks(); len(blocks) == 0 {
			return &NRIPlan{DropIn: d}, nil
		}
	}
	plan := &NRIPlan{}
	for _, b := range blocks {
		plan.ByHand = append(plan.ByHand, fmt.Sprintf("%s: set %s = %s in place of %s", b.Place(), b.Key, b.Want,
			b.Written))
	}
	if len(blocks) == 0 {
		plan.ByHand = []string{file + ": add these lines:\n\n" + crioNRIOn}
	}
	return plan, nil
}
