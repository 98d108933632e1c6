// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// schemaNode is what docs/devices.schema.json uses of JSON Schema.
type schemaNode struct {
	Type                 string
	Enum                 []string
	Required             []string
	Properties           map[string]*schemaNode
	AdditionalProperties json.RawMessage
	Items                *schemaNode

	seen bool
}

// check returns what of a value the schema does not allow, and marks what it allows.
func (n *schemaNode) check(at string, value any) []string {
	n.seen = true
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
				faults = append(faults, inner.check(at+"."+key, value[key])...)
			} else if string(n.AdditionalProperties) == "false" {
				faults = append(faults, at+" has the unknown key "+key)
			}
		}
	case []any:
		if n.Type != "array" {
			return []string{at + " is an array"}
		}
		for i, item := range value {
			faults = append(faults, n.Items.check(fmt.Sprintf("%s[%d]", at, i), item)...)
		}
	case string:
		if n.Type != "string" && !slices.Contains(n.Enum, value) {
			faults = append(faults, fmt.Sprintf("%s is %q", at, value))
		}
	default:
		faults = append(faults, fmt.Sprintf("%s is %v", at, value))
	}
	return faults
}

// unseen returns the keys that no value had.
func (n *schemaNode) unseen(at string) []string {
	if !n.seen {
		return []string{at}
	}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(n.Properties)) {
		keys = append(keys, n.Properties[key].unseen(at+"."+key)...)
	}
	if n.Items != nil {
		keys = append(keys, n.Items.unseen(at+"[]")...)
	}
	return keys
}

// The schema has every key that devices.json can have and no other, and the page
// describes each.
func TestTheViewIsAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/devices.schema.json")
	must(t, err)
	var schema schemaNode
	must(t, json.Unmarshal(text, &schema))
	page, err := os.ReadFile("../../docs/devices-json.md")
	must(t, err)

	const notes = `"jackfield.dev/interface":{"mac":"c2:11:22:33:44:55","ips":["10.0.0.1/24"],"gateway":["10.0.0.254"],` +
		`"dns":{"nameservers":["8.8.8.8"],"domain":"a","search":["b"],"options":["c"]},"bandwidth":{"ingressRate":2048},"labels":[{"key":"a","value":"b"}]}`
	data := []byte{'['}
	vdevs := map[string]int{}
	for _, info := range []string{
		`"type":"pci","pci":{"pci-address":"0000:03:00.1","vhost-net":"/dev/vhost-net","rdma-device":"mlx5_0","pf-pci-address":"0000:03:00.0","representor-device":"rep0"}`,
		`"type":"vdpa","vdpa":{"parent-device":"vdpa0","driver":"vhost","path":"/dev/vhost-vdpa-0","pci-address":"0000:03:00.1","pf-pci-address":"0000:03:00.0","representor-device":"rep0"}`,
		`"type":"vhost-user","vhost-user":{"mode":"client","path":"/s"},` + notes,
		`"type":"memif","memif":{"role":"slave","mode":"ethernet","path":"/s"}`,
	} {
		parsed, err := deviceinfo.Parse([]byte(`{"version":"1.1.0",`+info+`}`), "")
		must(t, err)
		v := viewEntry{
			att:     &attachment.Attachment{Network: "ns/n", IfName: "net1", Resource: "vendor.com/vf", DeviceID: "id", Info: parsed},
			creator: config.SideHost, socket: "/s", ownPath: "/s", vdpaNode: "/dev/vhost-vdpa-0", note: "n",
		}
		data = v.appendElement(data, v.eal(vdevs))
	}
	var value any
	must(t, json.Unmarshal(append(data, ']'), &value))
	for _, fault := range schema.check("devices", withoutNumbers(value)) {
		t.Error(fault)
	}
	for _, key := range schema.unseen("devices") {
		t.Errorf("devices.json never has the key %s of the schema", key)
	}
	for _, entry := range []*schemaNode{schema.Items, schema.Items.Properties["jackfield"]} {
		for key := range entry.Properties {
			if !strings.Contains(string(page), "`"+key+"`") {
				t.Errorf("docs/devices-json.md does not describe %s", key)
			}
		}
	}
}

// withoutNumbers leaves out the only numbers, those of bandwidth, whose keys are CNI's.
func withoutNumbers(value any) any {
	for _, entry := range value.([]any) {
		own := entry.(map[string]any)["jackfield"].(map[string]any)
		if own["bandwidth"] != nil {
			own["bandwidth"] = map[string]any{}
		}
	}
	return value
}

// The page has every variable that a container gets, and no other.
func TestVariablesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/devices-json.md")
	must(t, err)
	h := newHost(t, "enforce")
	h.listen("/run/vsw/a/s")
	h.info("one", "net-1", vhost("client", "/var/run/vsw/a/s"))
	r := ask("")
	r.Annotations = nil
	for name := range env(h.resolve(r)) {
		name = strings.Replace(name, "NET_1", "<IFNAME>", 1)
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/devices-json.md does not describe %s", name)
		}
	}
	if !strings.Contains(string(page), "| `JACKFIELD_<IFNAME>_PCI` |") {
		t.Error("docs/devices-json.md does not describe JACKFIELD_<IFNAME>_PCI")
	}
}
