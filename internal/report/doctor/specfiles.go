// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/internal/source/devicemetadata"
	"github.com/jackfield/jackfield/internal/source/hooksd"
	"github.com/jackfield/jackfield/pkg/cdi"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// checkCDI checks the CDI spec files, and keeps them for later checks.
func (d *doctor) checkCDI() {
	registry, err := OpenRegistry(d.Host, d.cfg, d.SpecDirs, false)
	if err != nil {
		d.report("cdi", Error, "", "the CDI directories cannot be read: %v", err)
		return
	}
	defer registry.Close()
	d.snapshot = registry.Snapshot()
	unreadable := 0
	for _, dir := range d.snapshot.Dirs() {
		if dir.Err != nil {
			unreadable++
			d.report("cdi", Error, "", "%v", dir.Err)
		}
	}
	d.compareRuntimeDirs()
	var faults []fileFault
	for _, f := range d.snapshot.Files() {
		if f.Err != nil {
			faults = append(faults, fileFault{file: f.Path, err: f.Err})
		} else if !d.IsPod {
			faults = append(faults, d.checkReferences(f.Path)...)
		}
	}
	d.reportFaults("cdi", "correct or remove it", faults)
	isFault := func(f fileFault) bool { return !f.warning }
	if stats := d.snapshot.Stats(); unreadable == 0 && !slices.ContainsFunc(faults, isFault) {
		d.reportOK("cdi", "%s in %s", diag.Count(stats.Devices, "device"), diag.Count(stats.Files, "file"))
	}
	for _, f := range d.snapshot.Ignored() {
		d.report("cdi", Warning, "rename it, or add the extension to cdi.extensions", "%s", f.String())
	}
	for _, f := range d.snapshot.Shadowed() {
		d.report("cdi", Note, "unless that is meant, remove one of the two", "%s", f.String())
	}
	if d.IsPod && len(d.snapshot.Files()) > 0 {
		d.report("cdi", Note, "run doctor on the node", "not checked in a pod: whether mount sources and hook programs of CDI files exist on the host")
	}
}

// compareRuntimeDirs warns where a runtime that injects CDI devices reads other CDI directories than Jackfield.
func (d *doctor) compareRuntimeDirs() {
	var own []string
	for _, dir := range d.snapshot.Dirs() {
		own = append(own, dir.Path)
	}
	canonical := func(dirs []string) (out []string) {
		for _, dir := range dirs {
			out = append(out, d.Host.Canonical(path.Clean(dir)))
		}
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(d.runtimeCDI)) {
		cdi := d.runtimeCDI[name]
		if slices.Equal(canonical(cdi.Dirs), canonical(own)) {
			continue
		}
		place := "by default"
		if cdi.Source.IsSet() {
			place = "by cdi_spec_dirs at " + cdi.Source.Place()
		}
		d.report("cdi", Warning, "unless that is meant, add to Jackfield's configuration: cdi: {specDirs: ["+strings.Join(cdi.Dirs, ", ")+"]}",
			"%s reads CDI files in %s (%s), and Jackfield in %s: each knows devices that the other does not",
			name, strings.Join(cdi.Dirs, ", "), place, strings.Join(own, ", "))
	}
}

// checkReferences returns the host paths of a CDI file that the host lacks, as `jackfield validate` does.
func (d *doctor) checkReferences(file string) (faults []fileFault) {
	found, err := cdi.ValidateFile(file, cdi.ValidateOptions{Root: d.Host.Dir(), CheckHost: true})
	if err != nil {
		return []fileFault{{file: file, err: err}}
	}
	for _, fault := range diag.All("", found) {
		f := *fault
		f.File, f.Severity = file, "" // the line begins with it
		faults = append(faults, fileFault{file: file, err: &f, warning: fault.IsWarning()})
	}
	return faults
}

// checkHooks checks the hooks.d directories, where the configuration names some.
func (d *doctor) checkHooks() {
	if len(d.cfg.Hooks.Dirs) == 0 {
		return
	}
	s := hooksd.New(d.Host, d.cfg.Hooks.Dirs, hooksd.Options{}).Snapshot()
	var faults []fileFault
	for _, p := range s.Problems {
		fault := *p
		fault.Severity = "" // the line begins with it
		faults = append(faults, fileFault{p.File, &fault, p.IsWarning()})
	}
	d.reportFaults("hooks", "correct or remove it", faults)
	if len(s.Problems) == 0 {
		d.reportOK("hooks", "%s in %s", diag.Count(len(s.Hooks), "hook"), strings.Join(d.cfg.Hooks.Dirs, ", "))
	}
}

// checkDeviceInfo checks the device-info files of network attachments and of device plugins.
func (d *doctor) checkDeviceInfo() {
	networks, err1 := deviceinfo.CNIDir{Root: d.Host.Dir(), Dir: d.cfg.DeviceInfo.CNIDir}.List()
	plugins, err2 := deviceinfo.DevicePluginDir{Root: d.Host.Dir(), Dir: d.cfg.DeviceInfo.DPDir}.List("")
	if err := errors.Join(err1, err2); err != nil {
		d.report("device-info", Error, "", "%v", err)
		return
	}
	var faults []fileFault
	for _, f := range append(networks, plugins...) {
		if f.Err == nil {
			continue
		}
		first := diag.All(f.File, f.Err)[0]
		first.File = f.File
		faults = append(faults, fileFault{file: f.File, err: first})
	}
	d.reportFaults("device-info", "its writer has to correct it", faults)
	if len(faults) == 0 {
		d.reportOK("device-info", "%s of network attachments, %d of device plugins", diag.Count(len(networks), "file"), len(plugins))
	}
}

// checkMultus checks Multus' records of sandboxes. Without its record, no rule that names networks applies to a sandbox.
func (d *doctor) checkMultus() {
	if d.cfg.Multus.CacheDir == "" {
		return
	}
	faults, err := attachment.CheckMultusRecords(d.Host, d.cfg.Multus.CacheDir)
	d.reportUnread("multus", err)
	for i, id := range slices.Sorted(maps.Keys(faults)) {
		if i == maxReported {
			d.report("multus", Warning, "", "and %d more", len(faults)-maxReported)
			return
		}
		isLiving := d.node != nil && slices.ContainsFunc(d.node.Sandboxes, func(s status.Sandbox) bool { return s.ID == id })
		severity := Warning
		if isLiving {
			severity = Error
		}
		d.report("multus", severity, "", "%v", faults[id])
	}
}

// checkClaims checks the metadata files of resource claims, where a driver has written some.
func (d *doctor) checkClaims() {
	files, err := devicemetadata.Dir{Host: d.Host, Path: d.cfg.Kubelet.PluginsDir}.List()
	if err != nil {
		d.report("claims", Error, "", "%v", err)
	}
	var faults []fileFault
	for _, f := range files {
		if f.Err != nil {
			faults = append(faults, fileFault{file: f.Path, err: f.Err})
		}
	}
	d.reportFaults("claims", "its driver has to correct it; until then containers that a rule applies to are not created", faults)
	if len(faults) == 0 && err == nil && len(files) > 0 {
		d.reportOK("claims", "device metadata of %s in %s", diag.Count(len(files), "request"), d.cfg.Kubelet.PluginsDir)
	}
}
