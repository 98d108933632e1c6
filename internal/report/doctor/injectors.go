// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
)

// checkCRIOInjectors reports what CRI-O puts into containers by itself.
func (d *doctor) checkCRIOInjectors(conf *runtimeconfig.CRIO, nri bool) {
	if dirs := conf.Get("crio", "runtime", "cdi_spec_dirs"); !dirs.IsSet() || len(dirs.List) > 0 {
		d.report("injectors", Note, "", "CRI-O injects CDI devices, too, for the CRI's field (cdi_spec_dirs, on by default): no policy rule is asked for these, and what it injected is not injected twice")
	}
	devices := []string{"/dev/fuse", "/dev/net/tun"}
	if allowed := conf.Get("crio", "runtime", "allowed_devices"); allowed.IsSet() {
		devices = allowed.List
	}
	for _, s := range conf.Find("allowed_annotations", "crio", "runtime") {
		if len(s.Path) != 5 || s.Path[2] != "runtimes" && s.Path[2] != "workloads" || len(devices) == 0 {
			continue
		}
		i := slices.IndexFunc(s.List, func(key string) bool { return key == "devices.crio.io" || key == "io.kubernetes.cri-o.Devices" })
		if i >= 0 {
			d.report("injectors", Warning, "take "+s.List[i]+" out of allowed_annotations of ["+strings.Join(s.Path[:4], ".")+"], and grant the devices by policy rules",
				"CRI-O injects into a pod of %s %q the devices that its annotation %s names, past the policy: any of %s", strings.TrimSuffix(s.Path[2], "s"), s.Path[3], s.List[i], strings.Join(devices, ", "))
		}
	}
	dirs := []string{"/usr/share/containers/oci/hooks.d"} // where CRI-O reads hook files by default
	if hooks := conf.Get("crio", "runtime", "hooks_dir"); hooks.IsSet() {
		dirs = hooks.List
	}
	if file, _ := d.findJackfieldHook("injectors", dirs); file != "" && nri {
		d.report("injectors", Warning, "keep one of the two: remove "+file+", or set enable_nri = false in [crio.nri] and restart CRI-O",
			"%s has CRI-O run jackfield-hook, and NRI is on: where jackfield-nri is registered, containers with sockets are refused, for both mount them at the same place", file)
	}
}

// findJackfieldHook returns the hook file in the directories that runs jackfield-hook, and the program; "" for none.
func (d *doctor) findJackfieldHook(check string, dirs []string) (file, program string) {
	host := d.configFiles()
	for _, dir := range dirs {
		names, err := host.ReadDir(dir)
		d.reportUnread(check, err)
		for _, name := range names {
			if path.Ext(name) != ".json" {
				continue
			}
			file := path.Join(dir, name)
			data, err := host.ReadFile(file)
			d.reportUnread(check, err)
			var content struct{ Hook struct{ Path string } }
			if err == nil && json.Unmarshal(data, &content) == nil && path.Base(content.Hook.Path) == "jackfield-hook" {
				return file, content.Hook.Path
			}
		}
	}
	return "", ""
}

// checkInjectors reports other NRI plugins, and device plugins that inject CDI devices.
func (d *doctor) checkInjectors() {
	names, err := d.Host.ReadDir(d.pluginDir, 1000)
	d.reportUnread("injectors", err)
	for _, name := range names {
		file := path.Join(d.pluginDir, name)
		switch {
		case strings.Contains(name, "device-injector"):
			d.report("injectors", Warning, "remove it, and ask with devices.jackfield.dev", "the NRI plugin %s injects any device that a pod's annotation names, past the policy", file)
		case strings.Contains(name, "hook-injector") && len(d.cfg.Hooks.Dirs) > 0:
			d.report("injectors", Warning, "keep one of the two", "the NRI plugin %s and hooks.dirs both inject the hooks of hooks.d directories", file)
		case strings.Contains(name, "jackfield"):
			d.report("injectors", Note, "", "the runtime starts the plugin %s itself; a second one, by systemd or as a DaemonSet, would conflict with it", file)
		default:
			d.report("injectors", Note, "", "there is another NRI plugin, %s: a conflict between both fails the container", file)
		}
	}
	for _, f := range d.snapshot.Files() {
		if strings.HasPrefix(path.Base(f.Path), "sriov-dp-") {
			d.report("injectors", Warning, "turn its CDI mode off: Jackfield delivers the devices of every pool", "the SR-IOV network device plugin is in CDI mode (%s): containers that use several pools lose device nodes", f.Path)
			break
		}
	}
}
