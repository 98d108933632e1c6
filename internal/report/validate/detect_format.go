// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/report/manifest"
)

// format is what a file is meant to be.
type format int

const (
	formatUnknown format = iota
	formatEmpty
	formatDeviceInfo
	formatCDI
	formatHooks
	formatConfig
	formatMetadata // of devices of resource claims
	formatManifest // of Kubernetes
	formatNetwork  // of CNI
)

// formatsByName are the formats that a caller can name.
var formatsByName = map[string]format{
	"device-info": formatDeviceInfo, "cdi": formatCDI, "hook": formatHooks, "config": formatConfig, "metadata": formatMetadata, "network": formatNetwork,
}

// FormatNames returns the names of the formats, sorted.
func FormatNames() []string { return slices.Sorted(maps.Keys(formatsByName)) }

// formatOf returns the intended format of a file: the caller's, or the one that its path or its content shows.
func (v *Validator) formatOf(t text) format {
	if v.as != formatUnknown {
		return v.as
	}
	found := detectFormat(t.ext, t.data)
	isOther := found == formatDeviceInfo || found == formatMetadata || found == formatHooks || found == formatManifest || found == formatNetwork
	if !isOther && !specWords().Match(t.data) && isConfigPath(cmp.Or(t.hostPath, t.name)) {
		return formatConfig
	}
	return found
}

// isConfigPath reports whether the file at a path is a configuration of Jackfield, also an empty one: it is where Jackfield
// or a runtime reads it, or has the name of the node's.
func isConfigPath(file string) bool {
	name := path.Base(file)
	switch path.Dir(file) {
	case path.Dir(config.DefaultPath):
		return true
	case "/etc/nri/conf.d": // the runtime passes the file of the same name to a plugin that it starts
		return strings.Contains(name, "jackfield")
	}
	return name == path.Base(config.DefaultPath)
}

// detectFormat returns the intended format of a file by its content, also of broken content. ext is the
// extension of its name. A YAML file is CDI, unless it has keys of a configuration, or misspelt ones,
// and none of CDI.
func detectFormat(ext string, data []byte) format {
	isYAML := ext == ".yaml" || ext == ".yml"
	text := bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	switch {
	case !isYAML && metadataWords().Match(text):
		return formatMetadata
	case (isYAML || ext == ".json") && isManifest(text):
		return formatManifest
	case isYAML && (specWords().Match(text) || !configWords().Match(text) && !resemblesConfig(text)):
		return formatCDI
	case isYAML:
		return formatConfig
	case len(text) == 0:
		return formatEmpty
	case startsAsConfig(text):
		return formatConfig
	}
	if root, fault := jsontree.Parse(string(text)); fault == nil && root.Kind == jsontree.Object {
		if f := formatByKeys(root); f != formatUnknown {
			return f
		}
	}
	switch {
	case networkWords().Match(text):
		return formatNetwork
	case cdiWords().Match(text):
		return formatCDI
	case hookWords().Match(text):
		return formatHooks
	case (text[0] == '{' || ext == ".json") && infoWords().Match(text):
		return formatDeviceInfo
	}
	return formatUnknown
}

// The words that show the format of a file that is not valid JSON: it is broken, or is YAML under
// another name.
var (
	cdiWords        = lazyPattern(`(?m)^[\s{]*"?(cdiVersion|containerEdits)"?\s*:|"(cdiVersion|containerEdits)"`)
	hookWords       = lazyPattern(`"(hook|when|stages)"\s*:`)
	apiVersionWords = lazyPattern(`(?m)^[\s{]*["']?apiVersion["']?\s*:`)
	networkWords    = lazyPattern(`"(cniVersion|cniVersions|plugins)"\s*:`)
	manifestWords   = lazyPattern(`(?m)^[\s{]*["']?kind["']?\s*:\s*["']?(Pod|NetworkAttachmentDefinition|` + strings.Join(manifest.Workloads, "|") + `|List)["']?\s*(,|}|#|$)`)
	metadataWords   = lazyPattern(`"kind"\s*:\s*"DeviceMetadata"|"apiVersion"\s*:\s*"metadata\.resource\.k8s\.io/`)
	infoWords       = lazyPattern(`\b(pci|vdpa|vhost-user|memif|type|version)\b`)
	specWords       = lazyPattern(`(?m)^["']?(cdiVersion|kind|devices|containerEdits)["']?\s*:`)
	configWords     = lazyPattern(`(?m)^["']?(` + strings.Join(config.Keys(), "|") + `)["']?\s*:`)
	yamlKeys        = lazyPattern(`(?m)^["']?([A-Za-z]+)["']?\s*:`)
)

// lazyPattern returns a pattern that is compiled when it is first used. Most commands use none, and compiling them all
// takes a tenth of the time of a short command.
func lazyPattern(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

var specKeys = []string{"cdiVersion", "kind", "devices", "containerEdits", "annotations"}

// isManifest reports whether the file is a Kubernetes object. Its kind has no slash, unlike that of
// CDI.
func isManifest(data []byte) bool {
	return apiVersionWords().Match(data) && !cdiWords().Match(data) || manifestWords().Match(data)
}

// resemblesConfig reports whether a key of YAML is a misspelt one of the configuration, and none is
// a misspelt one of CDI.
func resemblesConfig(data []byte) bool {
	const maxKeys = 64
	resembles := false
	for _, m := range yamlKeys().FindAllSubmatch(data, maxKeys) {
		key := string(m[1])
		if diag.Nearest(key, specKeys...) != "" {
			return false
		}
		resembles = resembles || diag.Nearest(key, config.Keys()...) != ""
	}
	return resembles
}

// startsAsConfig reports whether a text that is not JSON begins with a key of the configuration.
func startsAsConfig(text []byte) bool {
	for line := range bytes.Lines(text) {
		switch line = bytes.TrimRight(line, " \t\r\n"); {
		case len(line) == 0, line[0] == '#', bytes.Equal(line, []byte("---")):
		default:
			return configWords().Match(line)
		}
	}
	return false
}

// formatByKeys returns the format that the first telling key of a JSON object shows.
func formatByKeys(root *jsontree.Node) format {
	found := formatUnknown
	for _, member := range root.Children {
		switch strings.ToLower(member.Key) {
		case "cniversion", "cniversions", "plugins":
			return formatNetwork
		case "cdiversion", "kind", "devices", "containeredits":
			return formatCDI
		case "hook", "when", "stages":
			return formatHooks
		case "pci", "vdpa", "vhost-user", "memif":
			return formatDeviceInfo
		case "type", "version": // CNI plugins and hooks.d files have them, too, beside keys of their own
			found = formatDeviceInfo
		}
	}
	return found
}
