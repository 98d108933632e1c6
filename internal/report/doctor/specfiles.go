// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/internal/source/devicemetadata"
	"github.com/jackfield/jackfield/internal/source/hooksd"
	"github.com/jackfield/jackfield/pkg/cdi"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// checkCDI checks the CDI spec files, and keeps them for later checks.
func checkCDI(_ context.Context, n *node) (found findings) {
	registry, err := OpenRegistry(n.Host, n.cfg, n.SpecDirs, false)
	if err != nil {
		found.add(Error, "", "the CDI directories cannot be read: %v", err)
		return found
	}
	defer registry.Close()
	n.snapshot = registry.Snapshot()
	unreadable := 0
	for _, dir := range n.snapshot.Dirs() {
		if dir.Err != nil {
			unreadable++
			found.add(Error, "", "%v", dir.Err)
		}
	}
	found = append(found, compareRuntimeDirs(n)...)
	var faults []fileFault
	for _, f := range n.snapshot.Files() {
		if f.Err != nil {
			faults = append(faults, fileFault{file: f.Path, err: f.Err})
		} else if !n.IsPod {
			faults = append(faults, checkReferences(n.Host, f.Path)...)
		}
	}
	found.addFaults("correct or remove it", faults)
	isFault := func(f fileFault) bool { return !f.warning }
	if stats := n.snapshot.Stats(); unreadable == 0 && !slices.ContainsFunc(faults, isFault) {
		found.addOK("%s in %s", diag.Count(stats.Devices, "device"), diag.Count(stats.Files, "file"))
	}
	for _, f := range n.snapshot.Ignored() {
		found.add(Warning, "rename it, or add the extension to cdi.extensions", "%s", f.String())
	}
	for _, f := range n.snapshot.Shadowed() {
		found.add(Note, "unless that is meant, remove one of the two", "%s", f.String())
	}
	if n.IsPod && len(n.snapshot.Files()) > 0 {
		found.add(Note, "run doctor on the node", "not checked in a pod: whether mount sources and hook programs of CDI "+
			"files exist on the host")
	}
	return found
}

// compareRuntimeDirs warns where a runtime that injects CDI devices reads other CDI directories than Jackfield.
func compareRuntimeDirs(n *node) (found findings) {
	var own []string
	for _, dir := range n.snapshot.Dirs() {
		own = append(own, dir.Path)
	}
	canonical := func(dirs []string) (out []string) {
		for _, dir := range dirs {
			out = append(out, n.Host.Canonical(path.Clean(dir)))
		}
		return out
	}
	runtimes := n.runtimeCDI()
	for _, name := range slices.Sorted(maps.Keys(runtimes)) {
		cdi := runtimes[name]
		if slices.Equal(canonical(cdi.Dirs), canonical(own)) {
			continue
		}
		place := "by default"
		if cdi.Source.IsSet() {
			place = "by cdi_spec_dirs at " + cdi.Source.Place()
		}
		found.add(Warning, "unless that is meant, add to Jackfield's configuration: cdi: {specDirs: "+
			"["+strings.Join(cdi.Dirs, ", ")+"]}",
			"%s reads CDI files in %s (%s), and Jackfield in %s: each knows devices that the other does not",
			name, strings.Join(cdi.Dirs, ", "), place, strings.Join(own, ", "))
	}
	return found
}

// checkReferences returns the host paths of a CDI file that the host lacks, as `jackfield validate` does.
func checkReferences(host hostfs.Root, file string) (faults []fileFault) {
	found, err := cdi.ValidateFile(file, cdi.ValidateOptions{Root: host.Dir(), CheckHost: true})
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
func checkHooks(_ context.Context, n *node) (found findings) {
	if len(n.cfg.Hooks.Dirs) == 0 {
		return found
	}
	s := hooksd.New(n.Host, n.cfg.Hooks.Dirs, hooksd.Options{}).Snapshot()
	var faults []fileFault
	for _, p := range s.Problems {
		fault := *p
		fault.Severity = "" // the line begins with it
		faults = append(faults, fileFault{p.File, &fault, p.IsWarning()})
	}
	found.addFaults("correct or remove it", faults)
	if len(s.Problems) == 0 {
		found.addOK("%s in %s", diag.Count(len(s.Hooks), "hook"), strings.Join(n.cfg.Hooks.Dirs, ", "))
	}
	return found
}

// checkDeviceInfo checks the device-info files of network attachments and of device plugins.
func checkDeviceInfo(_ context.Context, n *node) (found findings) {
	networks, err1 := deviceinfo.CNIDir{Root: n.Host.Dir(), Dir: n.cfg.DeviceInfo.CNIDir}.List()
	plugins, err2 := deviceinfo.DevicePluginDir{Root: n.Host.Dir(), Dir: n.cfg.DeviceInfo.DPDir}.List("")
	if err := errors.Join(err1, err2); err != nil {
		found.add(Error, "", "%v", err)
		return found
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
	found.addFaults("its writer has to correct it", faults)
	if len(faults) == 0 {
		found.addOK("%s of network attachments, %d of device plugins", diag.Count(len(networks), "file"), len(plugins))
	}
	return found
}

// checkMultus checks Multus' records of sandboxes. Without its record, no rule that names networks applies to a
// sandbox.
func checkMultus(_ context.Context, n *node) (found findings) {
	if n.cfg.Multus.CacheDir == "" {
		return found
	}
	faults, err := attachment.CheckMultusRecords(n.Host, n.cfg.Multus.CacheDir)
	found.addUnread(err)
	for i, id := range slices.Sorted(maps.Keys(faults)) {
		if i == maxReported {
			found.add(Warning, "", "and %d more", len(faults)-maxReported)
			return found
		}
		isLiving := n.daemon != nil && slices.ContainsFunc(n.daemon.Sandboxes,
			func(s status.Sandbox) bool { return s.ID == id })
		severity := Warning
		if isLiving {
			severity = Error
		}
		found.add(severity, "", "%v", faults[id])
	}
	return found
}

// checkClaims checks the metadata files of resource claims, where a driver has written some.
func checkClaims(_ context.Context, n *node) (found findings) {
	files, err := devicemetadata.Dir{Host: n.Host, Path: n.cfg.Kubelet.PluginsDir}.List()
	if err != nil {
		found.add(Error, "", "%v", err)
	}
	var faults []fileFault
	for _, f := range files {
		if f.Err != nil {
			faults = append(faults, fileFault{file: f.Path, err: f.Err})
		}
	}
	found.addFaults("its driver has to correct it; until then containers that a rule applies to are not created", faults)
	if len(faults) == 0 && err == nil && len(files) > 0 {
		found.addOK("device metadata of %s in %s", diag.Count(len(files), "request"), n.cfg.Kubelet.PluginsDir)
	}
	return found
}
