// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/network"
	"github.com/jackfield/jackfield/internal/report/manifest"
)

// checkNetwork checks a CNI configuration file, of one plugin or of a list, as jackfield-cni does. Other plugins' keys
// are theirs to check.
func checkNetwork(t text) (content string, found diag.List) {
	n, err := network.Read(string(t.data), "")
	if err != nil {
		return "", diag.List{{File: t.name, Severity: diag.SeverityError, Rule: diag.ErrorText(err)}}
	}
	if n.Plugins == 0 {
		return "CNI network without jackfield-cni", nil
	}
	return "CNI network with " + diag.Count(n.Plugins, "plugin") + " of jackfield-cni", nil
}

// NetworkFault is a CNI configuration file that jackfield-cni, or CNI itself, refuses.
type NetworkFault struct {
	File string
	Err  error
}

// DroppedKeys returns the CNI configuration files of a directory in which Multus' clusterNetwork is the path of a file.
// Multus 4.3 then hands plugins only the keys of the CNI specification. The daemon of Multus writes the path into the
// shim's file; a clusterNetwork in the daemon's own configuration, a ConfigMap volume below podsDir, takes precedence.
func DroppedKeys(host hostfs.Root, dir, podsDir string) (files []string) {
	names, _ := host.ReadDir(dir, maxNames) // CheckNetworks reports errors
	for _, name := range names {
		type plugin struct{ Type, ClusterNetwork string }
		var file struct {
			plugin
			Plugins []plugin
		}
		data, err := host.ReadFile(path.Join(dir, name), maxSize)
		if err != nil || json.Unmarshal(data, &file) != nil {
			continue
		}
		if slices.ContainsFunc(append(file.Plugins, file.plugin), func(p plugin) bool {
			return strings.HasPrefix(p.Type, "multus") && path.IsAbs(p.ClusterNetwork) &&
				!(p.Type == "multus-shim" && daemonNamesNetwork(host, podsDir))
		}) {
			files = append(files, path.Join(dir, name))
		}
	}
	return files
}

// daemonNamesNetwork reports whether the configuration of Multus' daemon has a clusterNetwork that is not a path.
func daemonNamesNetwork(host hostfs.Root, podsDir string) bool {
	pods, _ := host.ReadDir(podsDir, maxNames)
	for _, pod := range pods {
		volumes := path.Join(podsDir, pod, "volumes/kubernetes.io~configmap")
		names, _ := host.ReadDir(volumes, maxNames)
		for _, name := range names {
			var daemon struct{ ClusterNetwork string }
			data, err := host.ReadFile(path.Join(volumes, name, "daemon-config.json"), maxSize)
			if err == nil && json.Unmarshal(data, &daemon) == nil && daemon.ClusterNetwork != "" {
				return !path.IsAbs(daemon.ClusterNetwork)
			}
		}
	}
	return false
}

// CheckNetworks checks the files in a directory of CNI configurations as [Validator.CheckPath] does, without those that
// no runtime reads. It returns how many of them have plugins of jackfield-cni. A missing directory has none.
func CheckNetworks(host hostfs.Root, dir string) (own int, faults []NetworkFault, err error) {
	names, err := host.ReadDir(dir, maxNames)
	if errdefs.IsNotFound(err) {
		return 0, nil, nil
	}
	for _, name := range names {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, path.Ext(name)) {
			continue
		}
		file := path.Join(dir, name)
		data, err := host.ReadFile(file, maxSize)
		var n network.Network
		if err == nil {
			n, err = network.Read(string(data), "")
		}
		if n.Plugins > 0 {
			own++
		}
		if err != nil {
			faults = append(faults, NetworkFault{file, err})
		}
	}
	return own, faults, err
}

// checkManifest checks the NetworkAttachmentDefinitions of a Kubernetes manifest. Another command checks other objects.
func (v *Validator) checkManifest(t text) (content string, found diag.List) {
	objects, err := manifest.Parse(t.name, t.data, "default")
	if objects.Definitions == 0 {
		return "", diag.List{v.notChecked(t)}
	}
	var none manifest.NoPodsError
	if err != nil && !errors.As(err, &none) {
		return "", diag.List{{File: t.name, Severity: diag.SeverityError, Rule: diag.ErrorText(err)}}
	}
	for _, name := range slices.Sorted(maps.Keys(objects.Networks)) {
		if fault := objects.Networks[name].Err; fault != nil {
			found = append(found, &diag.Diagnostic{File: t.name, Severity: diag.SeverityError, Rule: diag.ErrorText(fault)})
		}
	}
	content = diag.Count(objects.Definitions, "NetworkAttachmentDefinition")
	if len(objects.Pods) > 0 {
		content += fmt.Sprintf("; run `jackfield explain %s` on its pods", t.name)
	}
	return content, found
}

// notChecked is about a Kubernetes object, which another command checks.
func (v *Validator) notChecked(t text) *diag.Diagnostic {
	d := &diag.Diagnostic{File: t.name, Severity: diag.SeverityWarning,
		Rule: "is a Kubernetes object, and was not checked"}
	if t.isNamed || v.isReadDir(path.Dir(t.hostPath)) {
		d.Severity = diag.SeverityError
	}
	if t.hostPath == "" {
		d.File = "-" // as explain reads it
	}
	d.Hint = "run `jackfield explain " + d.File + "` on pods and workloads"
	return d
}
