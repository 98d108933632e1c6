// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/json"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// ifNotesKey is the key of device-info below which jackfield-cni notes what the
// Device Information Specification has no key for.
const ifNotesKey = "jackfield.dev/interface"

// ifNotes is what is known of an attachment's interface beyond its device. The
// file is untrusted, like all device-info: what is no address is left out.
type ifNotes struct {
	MAC     string   `json:"mac"`
	IPs     []string `json:"ips"`
	Gateway []string `json:"gateway"`
	DNS     *struct {
		Nameservers []string `json:"nameservers,omitempty"`
		Domain      string   `json:"domain,omitempty"`
		Search      []string `json:"search,omitempty"`
		Options     []string `json:"options,omitempty"`
	} `json:"dns"`
	Bandwidth map[string]uint64 `json:"bandwidth"` // bits per second, and bits
	Labels    []struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"labels"`
}

// readIfNotes reads the notes of a device-info; nil where there are none that
// can be read.
func readIfNotes(info *deviceinfo.Info) *ifNotes {
	raw, ok := info.Extra[ifNotesKey]
	if !ok {
		return nil
	}
	n := &ifNotes{}
	if json.Unmarshal(raw, n) != nil {
		return nil
	}
	n.MAC, _ = macAddress(n.MAC)
	n.IPs = only(n.IPs, isCIDR)
	n.Gateway = only(n.Gateway, isIP)
	return n
}

func only(list []string, ok func(string) bool) []string {
	var kept []string
	for _, s := range list {
		if ok(s) {
			kept = append(kept, s)
		}
	}
	return kept
}

// appendStatus appends the keys that the network-status annotation has for an
// interface (Multi-Network CRD specification, §5.3.1).
func (n *ifNotes) appendStatus(data []byte) []byte {
	data = appendKey(data, "ips", n.IPs, len(n.IPs) > 0)
	data = appendKey(data, "gateway", n.Gateway, len(n.Gateway) > 0)
	data = appendKey(data, "mac", n.MAC, n.MAC != "")
	return appendKey(data, "dns", n.DNS, n.DNS != nil)
}

// appendKey appends a key and its value behind others.
func appendKey(data []byte, key string, value any, there bool) []byte {
	if !there {
		return data
	}
	return appendJSON(append(append(append(data, ", \""...), key...), "\": "...), value)
}

func appendJSON(data []byte, value any) []byte {
	raw, _ := json.Marshal(value) // of these types always works
	return append(data, raw...)
}

// macArgument is the argument by which DPDK's virtio-user and memif drivers take the
// interface's hardware address, behind others; "" where none is known.
func (n *ifNotes) macArgument() string {
	if n == nil || n.MAC == "" {
		return ""
	}
	return ",mac=" + n.MAC
}
