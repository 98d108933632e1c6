// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// crioHooksDir is where CRI-O reads hook files, unless hooks_dir names other directories.
const crioHooksDir = "/usr/share/containers/oci/hooks.d"

// crio looks at CRI-O's configuration. It reports whether there is one.
func (d *doctor) crio() bool {
	s := crioFiles(d.files(), d.crioConfig)
	for _, err := range s.faults {
		if errdefs.IsPermissionDenied(err) || errors.Is(err, os.ErrPermission) {
			d.say("runtime", severityUnknown, asRoot, "CRI-O's configuration: %v", err)
		} else {
			d.say("runtime", severityError, "correct the file: CRI-O does not start with it", "%v", err)
		}
	}
	if len(s.files) == 0 {
		return len(s.faults) > 0
	}
	nri := s.toml.section(crioNRITable...)
	d.place(nri["nri_listen"], nri["nri_plugin_dir"])
	on := s.key(crioNRITable, "enable_nri")
	blocks := s.blocks()
	for _, by := range blocks {
		d.say("runtime", severityError, "set "+by.key+" = "+by.want+" in [crio.nri] at "+by.place+" and restart CRI-O", "%s %s", by.file, by.effect)
	}
	switch {
	case len(blocks) > 0:
	case on == nil:
		d.say("runtime", severityNote, "", "CRI-O's configuration does not mention NRI: it is on by default since 1.30")
	default:
		d.ok("runtime", "%s has NRI on", on.file)
	}
	if len(s.faults) == 0 {
		file := d.crioConfig
		if by := s.key(crioValidatorTable, crioValidator.enable); by != nil {
			file = by.file
		}
		d.setValidator("cri-o", crioValidator.values(s.toml.section(crioValidatorTable...), file))
	}
	d.crioInjectors(s, on == nil || on.value == "true")
	return true
}

// crioInjectors looks for what CRI-O puts into containers by itself.
func (d *doctor) crioInjectors(s *crioSetup, nri bool) {
	runtime := s.toml.section(crioRuntimeTable...)
	if dirs, set := runtime["cdi_spec_dirs"]; !set || len(list(dirs)) > 0 {
		d.say("injectors", severityNote, "", "CRI-O injects CDI devices, too, for the CRI's field (cdi_spec_dirs, on by default): no policy rule is asked for these, and what it injected is not injected twice")
	}
	allowed, set := runtime["allowed_devices"]
	if !set {
		allowed = `["/dev/fuse", "/dev/net/tun"]`
	}
	if devices := list(allowed); len(devices) > 0 {
		for _, table := range slices.Sorted(maps.Keys(s.toml)) {
			parts := strings.Split(table, "\x00")
			if len(parts) != 4 || crioNamedTable(table) == "" {
				continue
			}
			for _, key := range list(s.toml[table]["allowed_annotations"]) {
				if key != "devices.crio.io" && key != "io.kubernetes.cri-o.Devices" {
					continue
				}
				d.say("injectors", severityWarning, "take "+key+" out of allowed_annotations of ["+strings.Join(parts, ".")+"], and grant the devices by policy rules",
					"CRI-O gives a pod of %s %q the devices that its annotation %s names, past the policy: any of %s", strings.TrimSuffix(parts[2], "s"), parts[3], key, strings.Join(devices, ", "))
				break
			}
		}
	}
	dirs := list(runtime["hooks_dir"])
	if _, set := runtime["hooks_dir"]; !set {
		dirs = []string{crioHooksDir}
	}
	if file := d.jackfieldHookFile(dirs); file != "" && nri {
		d.say("injectors", severityWarning, "keep one of the two: remove "+file+", or set enable_nri = false in [crio.nri] and restart CRI-O",
			"%s has CRI-O run jackfield-hook, and NRI is on: where jackfield-nri is registered, containers with sockets are refused, for both mount them at the same place", file)
	}
}

// jackfieldHookFile is the hook file that runs jackfield-hook in directories that CRI-O reads, "" for none.
func (d *doctor) jackfieldHookFile(dirs []string) string {
	host := d.files()
	for _, dir := range dirs {
		names, _ := host.ReadDir(dir, maxImportNames)
		slices.Sort(names)
		for _, name := range names {
			if path.Ext(name) != ".json" {
				continue
			}
			file := path.Join(dir, name)
			data, err := host.ReadFile(file, maxRuntimeFile)
			var content struct {
				Hook struct{ Path string }
			}
			if err == nil && json.Unmarshal(data, &content) == nil && path.Base(content.Hook.Path) == "jackfield-hook" {
				return file
			}
		}
	}
	return ""
}
