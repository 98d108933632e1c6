// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/config"
)

func TestFormatIsDetectedFromNameAndContent(t *testing.T) {
	for _, tt := range []struct {
		name, file, data string
		want             format
	}{
		{"device-info", "x", `{"type": "pci", "version": "1.1.0"}`, formatDeviceInfo},
		{"device-info with an unknown key first", "x", `{"vendor": {"cdiVersion": [1, {"kind": "a"}]}, "type": "pci"}`, formatDeviceInfo},
		{"device-info without type", "x", `{"pci": {}}`, formatDeviceInfo},
		{"device-info in the wrong case", "x", `{"Type": "pci"}`, formatDeviceInfo},
		{"device-info with curly quotes", "x", `{“type”: "pci"}`, formatDeviceInfo},
		{"device-info without its brace", "x.json", `"type": "pci"`, formatDeviceInfo},
		{"a hook", "x", `{"version": "1.0.0", "hook": {"path": "/h"}}`, formatHooks},
		{"a hook of the old schema", "x", `{"hook": "/h", "stages": ["prestart"]}`, formatHooks},
		{"a hook that is cut", "x.json", `{"version": "1.0.0", "hook": {`, formatHooks},
		{"device-info with its version first", "x", `{"version": "1.1.0", "type": "pci"}`, formatDeviceInfo},
		{"device-info with a version alone", "x", `{"version": "1.1.0"}`, formatDeviceInfo},
		{"CDI", "x", `{"cdiVersion": "0.6.0"}`, formatCDI},
		{"CDI with devices first", "x.json", `{"devices": [{"type": "pci"}], "kind": "a.b/c"}`, formatCDI},
		{"CDI that is broken at once", "x", `{cdiVersion: "0.6.0"}`, formatCDI},
		{"CDI broken before the key", "x", `{,"cdiVersion": "0.6.0", "kind": "a.b/c"}`, formatCDI},
		{"CDI in YAML under another name", "x.json", "---\ncdiVersion: 0.6.0\n", formatCDI},
		{"YAML", "x.yaml", `{"type": "pci"}`, formatCDI},
		{"yml", "x.yml", ``, formatCDI},
		{"a configuration", "x.yaml", "# c\npolicy:\n  mode: audit\n", formatConfig},
		{"a configuration with a wrong key", "x.yml", "polciy: {}\n\"sockets\" : {}\n", formatConfig},
		{"a configuration with one key, and that wrong", "x.yaml", "sokets: {}\n", formatConfig},
		{"a configuration with a key in the wrong case", "x.yaml", "# c\nPolicy:\n  mode: audit\n", formatConfig},
		{"a configuration behind a byte order mark", "x.yaml", "\ufeffpolicy:\n  mode: audit\n", formatConfig},
		{"CDI with wrong keys alone", "x.yaml", "knd: a.b/c\ndevcies: []\npolice: 1\n", formatCDI},
		{"YAML of something else", "x.yaml", "name: a\nspec: {}\n", formatCDI},
		{"CDI with a configuration's key", "x.yaml", "hooks: []\nkind: a.b/c\n", formatCDI},
		{"CDI that has such keys within", "x.yaml", "containerEdits:\n  hooks: []\n", formatCDI},
		{"a configuration under another name", "x", "# c\n---\npolicy: {}", formatConfig},
		{"a page on policies", "README", "How to write a\npolicy: begin with mode audit.", formatUnknown},
		{"a plugin's network", "x.conf", `{"type": "jackfield-cni", "name": "n", "cniVersion": "1.0.0"}`, formatNetwork},
		{"a list of plugins", "x.conflist", `{"name": "n", "plugins": []}`, formatNetwork},
		{"a network that is cut", "x.conflist", `{"cniVersion": "1.0.0", "plugins": [`, formatNetwork},
		{"a definition of a network", "x.yaml", "kind: NetworkAttachmentDefinition\nspec: {}\n", formatManifest},
		{"a byte order mark", "x", "\ufeff{\"type\": \"pci\"}", formatDeviceInfo},
		{"device metadata", "metadata.json", `{"kind": "DeviceMetadata"}`, formatMetadata},
		{"device metadata of a later version first", "x", `{"apiVersion":"metadata.resource.k8s.io/v2"} {"kind": "x"}`, formatMetadata},
		{"device metadata that is cut", "x", `{"apiVersion": "metadata.resource.k8s.io/v1beta1", "meta`, formatMetadata},
		{"empty", "x", "", formatEmpty},
		{"blank", "x.json", " \n\t", formatEmpty},
		{"only a mark", "x", "\ufeff", formatEmpty},
		{"an empty map", "x", "{}", formatUnknown},
		{"another map", "x.json", `{"name": 1}`, formatUnknown},
		{"a list", "x.json", `[]`, formatUnknown},
		{"a page on device-info", "README", `The "type" and "version" of device-info.`, formatUnknown},
		{"deep", "x", strings.Repeat("[", 100000), formatUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := detectFormat(path.Ext(tt.file), []byte(tt.data)); got != tt.want {
				t.Errorf("detectFormat(%q, %.40q) = %d, want %d", tt.file, tt.data, got, tt.want)
			}
		})
	}
}

// A file with any single key of the configuration is a configuration.
func TestDetectFormatKnowsEveryConfigurationKey(t *testing.T) {
	_, err := config.Parse([]byte("none: {}"), "x.yaml")
	_, list, ok := strings.Cut(fmt.Sprint(err), "the keys here are ")
	if !ok {
		t.Fatalf("the keys are not in %q", err)
	}
	for key := range strings.SplitSeq(list, ", ") {
		if got := detectFormat(".yaml", []byte(key+": {}\n")); got != formatConfig {
			t.Errorf("detectFormat of the key %q = %d, want a configuration", key, got)
		}
	}
}

func FuzzDetectFormat(f *testing.F) {
	f.Add("x.json", []byte(`{"a": [{}, "b", {"type": 1}], "cdiVersion": ""}`))
	f.Add("x", []byte(`{“type”`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		detectFormat(path.Ext(name), data)
	})
}
