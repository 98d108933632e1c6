// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// schemaNode holds the keywords of JSON Schema that docs/reference/devices.schema.json uses.
type schemaNode struct {
	Type                 string
	Enum                 []string
	Required             []string
	Properties           map[string]*schemaNode
	AdditionalProperties json.RawMessage
	Items                *schemaNode

	used bool
}

// validate returns the faults of a value, and marks the keys of the schema that the value has.
func (n *schemaNode) validate(at string, value any) []string {
	n.used = true
	var faults []string
	switch value := value.(type) {
	case map[string]any:
		if n.Type != "object" {
			return []string{at + " is an object"}
		}
		for _, key := range n.Required {
			if _, ok := value[key]; !ok {
				faults = append(faults, at+" has no "+key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if inner := n.Properties[key]; inner != nil {
				faults = append(faults, inner.validate(at+"."+key, value[key])...)
			} else if string(n.AdditionalProperties) == "false" {
				faults = append(faults, at+" has the unknown key "+key)
			}
		}
	case []any:
		if n.Type != "array" {
			return []string{at + " is an array"}
		}
		for i, item := range value {
			faults = append(faults, n.Items.validate(fmt.Sprintf("%s[%d]", at, i), item)...)
		}
	case string:
		if n.Type == "integer" {
			if _, err := strconv.Atoi(value); err != nil {
				faults = append(faults, fmt.Sprintf("%s is %q", at, value))
			}
		} else if n.Type != "string" && !slices.Contains(n.Enum, value) {
			faults = append(faults, fmt.Sprintf("%s is %q", at, value))
		}
	default:
		faults = append(faults, fmt.Sprintf("%s is %v", at, value))
	}
	return faults
}

// listUnusedKeys returns the keys of the schema that no value had.
func (n *schemaNode) listUnusedKeys(at string) []string {
	if !n.used {
		return []string{at}
	}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(n.Properties)) {
		keys = append(keys, n.Properties[key].listUnusedKeys(at+"."+key)...)
	}
	if n.Items != nil {
		keys = append(keys, n.Items.listUnusedKeys(at+"[]")...)
	}
	return keys
}

// The schema has exactly the keys that devices.json can have, and the page describes each.
func TestViewIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/devices.schema.json")
	testkit.Must(t, err)
	var schema schemaNode
	testkit.Must(t, json.Unmarshal(text, &schema))
	page, err := os.ReadFile("../../docs/reference/devices-json.md")
	testkit.Must(t, err)

	const notes = `"jackfield.dev/interface":{"mac":"c2:11:22:33:44:55","mtu":9000,"queues":2,"ips":["10.0.0.1/24"],"gateway":["10.0.0.254"],` +
		`"dns":{"nameservers":["8.8.8.8"],"domain":"a","search":["b"],"options":["c"]},"bandwidth":{"ingressRate":2048},"labels":[{"key":"a","value":"b"}]}`
	var view []viewEntry
	for _, info := range []string{
		`"type":"pci","pci":{"pci-address":"0000:03:00.1","vhost-net":"/dev/vhost-net","rdma-device":"mlx5_0","pf-pci-address":"0000:03:00.0","representor-device":"rep0"}`,
		`"type":"vdpa","vdpa":{"parent-device":"vdpa0","driver":"vhost","path":"/dev/vhost-vdpa-0","pci-address":"0000:03:00.1","pf-pci-address":"0000:03:00.0","representor-device":"rep0"}`,
		`"type":"vhost-user","vhost-user":{"mode":"client","path":"/s"},` + notes,
		`"type":"memif","memif":{"role":"slave","mode":"ethernet","path":"/s"}`,
	} {
		parsed, err := deviceinfo.Parse([]byte(`{"version":"1.1.0",`+info+`}`), "")
		testkit.Must(t, err)
		a := &attachment.Attachment{Network: "ns/n", IfName: "net1", Resource: "vendor.com/vf", DeviceID: "id", Info: parsed}
		view = append(view, *newAttachmentEntry(a, placement{path: "/s", ownPath: "/s", creator: config.SideHost, note: "n"}))
	}
	claim := &attachment.ClaimedDevice{Claim: "c", PodClaim: "p", Request: "r", Driver: "d", Pool: "n", Device: "dev", IPs: []string{"10.0.0.1/24"}, MAC: "c2:11:22:33:44:55"}
	view = append(view, *newNamedEntry("a", placement{path: "/s", ownPath: "/t", creator: config.SideHost, note: "n"}),
		*newAttachmentEntry(&attachment.Attachment{Claimed: claim}, placement{}))
	view[0].pins = true
	data, err := encodeView(listDevices(view, "2Gi"))
	testkit.Must(t, err)
	var value any
	testkit.Must(t, json.Unmarshal(data, &value))
	for _, fault := range schema.validate("devices", replaceNumbers(value)) {
		t.Error(fault)
	}
	for _, key := range schema.listUnusedKeys("devices") {
		t.Errorf("devices.json never has the key %s of the schema", key)
	}
	for _, entry := range []*schemaNode{schema.Items, schema.Items.Properties["jackfield"]} {
		for key := range entry.Properties {
			if !strings.Contains(string(page), "`"+key+"`") {
				t.Errorf("docs/reference/devices-json.md does not describe %s", key)
			}
		}
	}
}

// replaceNumbers empties the bandwidth, whose keys are defined by CNI, and replaces other numbers by strings.
func replaceNumbers(value any) any {
	for _, entry := range value.([]any) {
		own := entry.(map[string]any)["jackfield"].(map[string]any)
		if own["bandwidth"] != nil {
			own["bandwidth"] = map[string]any{}
		}
		if own["queues"] == 2.0 {
			own["queues"] = "2"
		}
		if e := entry.(map[string]any); e["mtu"] == 9000.0 {
			e["mtu"] = "9000"
		}
	}
	return value
}

// The page describes every variable that a container gets.
func TestVariablesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/devices-json.md")
	testkit.Must(t, err)
	h := newNamedHost(t, true, "")
	h.listen("/run/vsw/a/s")
	h.writeInfo("one", "net-1", vhostUserInfo("client", "/var/run/vsw/a/s"))
	for name := range planEnv(h.resolve(newRequest("socket:spire"))) {
		name = strings.NewReplacer("NET_1", "<IFNAME>", "SPIRE", "<NAME>").Replace(name)
		if !strings.Contains(string(page), "- `"+name+"`: ") {
			t.Errorf("docs/reference/devices-json.md does not describe %s", name)
		}
	}
	if !strings.Contains(string(page), "- `JACKFIELD_<IFNAME>_PCI`: ") {
		t.Error("docs/reference/devices-json.md does not describe JACKFIELD_<IFNAME>_PCI")
	}
}
