// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"github.com/jackfield/jackfield/pkg/wording"
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
	formatManifest // of Kubernetes
)

// recognise tells what a file is meant to be, by its content, also where that
// is broken. YAML goes by its name: it is CDI, unless it has a configuration's
// keys, or what must be one misspelt, and none of CDI's.
func recognise(name string, data []byte) format {
	switch ext := path.Ext(name); {
	case (ext == ".yaml" || ext == ".yml" || ext == ".json") && isManifest(data):
		return formatManifest
	case ext == ".yaml" || ext == ".yml":
		if specWords().Match(data) || !configWords().Match(data) && !nearConfig(data) {
			return formatCDI
		}
		return formatConfig
	case len(bytes.TrimSpace(bytes.TrimPrefix(data, utf8BOM))) == 0:
		return formatEmpty
	}
	data = bytes.TrimSpace(bytes.TrimPrefix(data, utf8BOM))
	if data[0] == '{' {
		if f := byKeys(data); f != formatUnknown {
			return f
		}
	}
	switch {
	case cdiWords().Match(data):
		return formatCDI
	case hookWords().Match(data):
		return formatHooks
	case (data[0] == '{' || path.Ext(name) == ".json") && infoWords().Match(data):
		return formatDeviceInfo
	}
	return formatUnknown
}

var utf8BOM = []byte("\xef\xbb\xbf")

// What is looked for in a file whose keys cannot be read, because it is broken
// before the first one that tells, or is YAML under another name.
var (
	cdiWords        = lazy(`(?m)^[\s{]*"?(cdiVersion|containerEdits)"?\s*:|"(cdiVersion|containerEdits)"`)
	hookWords       = lazy(`"(hook|when|stages)"\s*:`)
	apiVersionWords = lazy(`(?m)^[\s{]*["']?apiVersion["']?\s*:`)
	manifestWords   = lazy(`(?m)^[\s{]*["']?kind["']?\s*:\s*["']?(Pod|` + strings.Join(workloads, "|") + `|List)["']?\s*(,|}|#|$)`)
	infoWords       = lazy(`\b(pci|vdpa|vhost-user|memif|type|version)\b`)
	specWords       = lazy(`(?m)^["']?(cdiVersion|kind|devices|containerEdits)["']?\s*:`)
	configWords     = lazy(`(?m)^["']?(` + strings.Join(configKeys, "|") + `)["']?\s*:`)
	yamlKeys        = lazy(`(?m)^["']?([A-Za-z]+)["']?\s*:`)
)

var (
	specKeys   = []string{"cdiVersion", "kind", "devices", "containerEdits", "annotations"}
	configKeys = []string{"cdi", "sockets", "deviceInfo", "multus", "kubelet", "hook", "hooks", "stateDir", "dialects", "metrics", "missed", "audit", "policy", "runtime", "validate", "compat"}
)

// isManifest reports whether the file is a Kubernetes object. Its kind has no slash, unlike that of CDI.
func isManifest(data []byte) bool {
	return apiVersionWords().Match(data) && !cdiWords().Match(data) || manifestWords().Match(data)
}

// nearConfig tells that a key of YAML is almost one of the configuration's, and none is
// almost one of CDI's.
func nearConfig(data []byte) bool {
	const most = 64 // keys that are looked at
	near := false
	for _, m := range yamlKeys().FindAllSubmatch(data, most) {
		key := string(m[1])
		if wording.Nearest(key, specKeys...) != "" {
			return false
		}
		near = near || wording.Nearest(key, configKeys...) != ""
	}
	return near
}

// byKeys goes by the first key of the outermost map that tells.
func byKeys(data []byte) format {
	dec := json.NewDecoder(bytes.NewReader(data))
	depth, key := 0, true // key: at depth 1, a key comes next
	version := formatUnknown
	for {
		tok, err := dec.Token()
		if err != nil {
			return formatUnknown
		}
		switch tok := tok.(type) {
		case json.Delim:
			if tok == '{' || tok == '[' {
				depth++
			} else {
				depth--
			}
			if depth == 0 {
				return version
			}
			key = true // after the first {, and after a value that has ended
			continue
		case string:
			if depth == 1 && key {
				if f := byKey(tok); f != formatUnknown {
					return f
				}
				if strings.EqualFold(tok, "version") {
					version = formatDeviceInfo // hooks.d has one, too
				}
				key = false
				continue
			}
		}
		if depth == 1 {
			key = true
		}
	}
}

func byKey(key string) format {
	switch strings.ToLower(key) {
	case "cdiversion", "kind", "devices", "containeredits":
		return formatCDI
	case "hook", "when", "stages":
		return formatHooks
	case "type", "pci", "vdpa", "vhost-user", "memif":
		return formatDeviceInfo
	}
	return formatUnknown
}
