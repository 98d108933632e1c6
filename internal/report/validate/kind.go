// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackfield/jackfield/internal/config"
)

// kind is a kind of file. Its value is the name for --as.
type kind string

const (
	kindUnknown    kind = ""
	kindCDI        kind = "cdi"
	kindConfig     kind = "config"
	kindDeviceInfo kind = "device-info"
	kindHook       kind = "hook"
	kindManifest   kind = "manifest" // of Kubernetes
	kindMetadata   kind = "metadata" // of devices of resource claims
	kindNetwork    kind = "network"  // of CNI
)

// KindNames returns the names of the kinds of files, sorted.
func KindNames() []string {
	var names []string
	for _, k := range []kind{kindCDI, kindConfig, kindDeviceInfo, kindHook, kindManifest, kindMetadata, kindNetwork} {
		names = append(names, string(k))
	}
	return names
}

// kindOf returns the kind of a file: the kind of --as, or of the file's place, or the kind that the file's version
// names.
func (v *Validator) kindOf(t text) kind {
	switch {
	case v.as != kindUnknown:
		return v.as
	case t.hostPath != "":
		if k := v.kindOfPlace(t.hostPath); k != kindUnknown {
			return k
		}
	}
	if !t.isNamed && !isDataFile(t.ext) {
		return kindUnknown // such as a README in a directory
	}
	return kindOfVersion(t.data)
}

// isDataFile reports whether an extension is one of JSON or YAML.
func isDataFile(ext string) bool { return slices.Contains([]string{".json", ".yaml", ".yml"}, ext) }

// kindOfPlace returns the kind of the files in a directory that this host reads, or in one of its name elsewhere.
func (v *Validator) kindOfPlace(file string) kind {
	dir, name, ext := path.Dir(file), path.Base(file), path.Ext(file)
	found, isRead := v.readDirs[v.host.Canonical(dir)]
	// A directory of this host counts before a name.
	switch parent := path.Base(path.Dir(dir)); {
	case isRead:
	case path.Base(dir) == "cdi" && parent != "devinfo":
		found = kindCDI
	case path.Base(dir) == "hooks.d":
		found = kindHook
	case parent == "devinfo":
		found = kindDeviceInfo
	case strings.Contains(dir, "/dra-device-metadata/"):
		found = kindMetadata
	case dir == path.Dir(config.DefaultPath), name == path.Base(config.DefaultPath):
		found = kindConfig
	case dir == "/etc/nri/conf.d" && strings.Contains(name, "jackfield"): // NRI passes it to the plugin of this name
		found = kindConfig
	case path.Base(dir) == "net.d", ext == ".conf", ext == ".conflist":
		found = kindNetwork
	}
	if (found == kindCDI || found == kindHook) && !isDataFile(ext) && !slices.Contains(v.specExts, ext) {
		return kindUnknown
	}
	return found
}

// versionKey matches the first key that names a format by its version, or a kind, with its value.
var versionKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)(?:^|[\s{,])["']?(cdiVersion|cniVersion|apiVersion|kind)["']?\s*:\s*["']?([^\s"',}]*)`)
})

// kindOfVersion returns the kind of a file that names its own format, also if the file is broken.
func kindOfVersion(data []byte) kind {
	m := versionKey().FindSubmatch(data)
	if m == nil {
		return kindUnknown
	}
	key, value := string(m[1]), string(m[2])
	switch {
	case key == "cdiVersion", key == "kind" && strings.Contains(value, "/"): // vendor.com/class
		return kindCDI
	case key == "cniVersion":
		return kindNetwork
	case strings.HasPrefix(value, "metadata.resource.k8s.io/"), value == "DeviceMetadata":
		return kindMetadata
	}
	return kindManifest
}
