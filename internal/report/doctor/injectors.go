// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
)

// checkContainerdCDI reports that containerd injects CDI devices by itself.
func checkContainerdCDI(_ context.Context, n *node) (found findings) {
	for _, cri := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"} {
		if s := n.containerd.Get("plugins", cri, "enable_cdi"); s.Value == "true" {
			found.add(Note, "", "containerd injects CDI devices, too, for the CRI's field and container annotations "+
				"(enable_cdi in %s): no policy rule is asked for these, and what it injected is not injected twice", s.File)
			break
		}
	}
	return found
}

// checkCRIOInjectors reports the devices and hooks that CRI-O injects by itself.
func checkCRIOInjectors(_ context.Context, n *node) (found findings) {
	conf := n.crio
	if dirs := conf.Get("crio", "runtime", "cdi_spec_dirs"); !dirs.IsSet() || len(dirs.List) > 0 {
		found.add(Note, "", "CRI-O injects CDI devices, too, for the CRI's field (cdi_spec_dirs, on by default): "+
			"no policy rule is asked for these, and what it injected is not injected twice")
	}
	devices := []string{"/dev/fuse", "/dev/net/tun"}
	if allowed := conf.Get("crio", "runtime", "allowed_devices"); allowed.IsSet() {
		devices = allowed.List
	}
	for _, s := range conf.Find("allowed_annotations", "crio", "runtime") {
		if len(s.Path) != 5 || s.Path[2] != "runtimes" && s.Path[2] != "workloads" || len(devices) == 0 {
			continue
		}
		i := slices.IndexFunc(s.List, func(key string) bool {
			return key == "devices.crio.io" ||
				key == "io.kubernetes.cri-o.Devices"
		})
		if i >= 0 {
			found.add(Warning, "take "+s.List[i]+" out of allowed_annotations of ["+strings.Join(s.Path[:4], ".")+
				"], and grant the devices by policy rules",
				"CRI-O injects into a pod of %s %q the devices that its annotation %s names, past the policy: any of %s",
				strings.TrimSuffix(s.Path[2], "s"), s.Path[3], s.List[i], strings.Join(devices, ", "))
		}
	}
	isOn := !conf.Get("crio", "nri", "enable_nri").IsNot("true")
	if file, _ := findJackfieldHook(n, &found, crioHooksDirs(conf)); file != "" && isOn {
		found.add(Note,
			"to start no process for them, remove "+file+", or set enable_nri = false in [crio.nri] and restart CRI-O",
			"%s has CRI-O run jackfield-hook, and NRI is on: the hook adds nothing to containers that jackfield-nri serves",
			file)
	}
	return found
}

// crioHooksDirs returns the directories in which CRI-O reads hook files.
func crioHooksDirs(conf *runtimeconfig.CRIO) []string {
	if hooks := conf.Get("crio", "runtime", "hooks_dir"); hooks.IsSet() {
		return hooks.List
	}
	return []string{"/usr/share/containers/oci/hooks.d"}
}

// findJackfieldHook returns the hook file in the directories that runs jackfield-hook, and the program; "" for none. It
// reports files and directories that it cannot read.
func findJackfieldHook(n *node, found *findings, dirs []string) (file, program string) {
	host := n.configFiles()
	for _, dir := range dirs {
		names, err := host.ReadDir(dir)
		found.addUnread(err)
		for _, name := range names {
			if path.Ext(name) != ".json" {
				continue
			}
			file := path.Join(dir, name)
			data, err := host.ReadFile(file)
			found.addUnread(err)
			var content struct{ Hook struct{ Path string } }
			if err == nil && json.Unmarshal(data, &content) == nil && path.Base(content.Hook.Path) == "jackfield-hook" {
				return file, content.Hook.Path
			}
		}
	}
	return "", ""
}

// maxPlugins bounds the files of the directory of NRI plugins that are read.
const maxPlugins = 1000

// checkInjectors reports other NRI plugins, and device plugins that inject CDI devices.
func checkInjectors(_ context.Context, n *node) (found findings) {
	dir := n.nriPluginDir()
	names, err := n.Host.ReadDir(dir, maxPlugins)
	found.addUnread(err)
	for _, name := range names {
		file := path.Join(dir, name)
		switch {
		case strings.Contains(name, "device-injector"):
			found.add(Warning, "remove it, and ask with devices.jackfield.dev",
				"the NRI plugin %s injects any device that a pod's annotation names, past the policy", file)
		case strings.Contains(name, "hook-injector") && len(n.cfg.Hooks.Dirs) > 0:
			found.add(Warning, "keep one of the two", "the NRI plugin %s and hooks.dirs both inject the hooks of hooks.d "+
				"directories", file)
		case strings.Contains(name, "jackfield"):
			found.add(Note, "", "the runtime starts the plugin %s itself; a second one, by systemd or as a DaemonSet, "+
				"would conflict with it", file)
		default:
			found.add(Note, "", "there is another NRI plugin, %s: a conflict between both fails the container", file)
		}
	}
	for _, f := range n.snapshot.Files() {
		if strings.HasPrefix(path.Base(f.Path), "sriov-dp-") {
			found.add(Warning, "turn its CDI mode off: Jackfield delivers the devices of every pool",
				"the SR-IOV network device plugin is in CDI mode (%s): containers that use several pools lose device nodes", f.Path)
			break
		}
	}
	return found
}

// runtimeCDI returns the CDI configuration of the runtimes that inject CDI devices, by their names in messages.
func (n *node) runtimeCDI() map[string]runtimeconfig.CDI {
	all := map[string]runtimeconfig.CDI{}
	if n.containerd != nil {
		if cdi, on := n.containerd.CDI(); on {
			all["containerd"] = cdi
		}
	}
	if n.crio != nil && len(n.crio.Faults) == 0 {
		if cdi, on := n.crio.CDI(); on {
			all["CRI-O"] = cdi
		}
	}
	return all
}
