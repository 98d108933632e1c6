// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"

	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// NetworkStatusAnnotation is the annotation that holds a list of [NetworkStatus] (§6). A
// tenant can write it, so its content is not trusted.
const NetworkStatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// maxNetworkStatusSize is the limit of Kubernetes, in bytes, for all annotations of an
// object together.
const maxNetworkStatusSize = 256 << 10

// NetworkStatus is an element of the network-status annotation (§6). Other keys than these
// three are kept unchanged.
type NetworkStatus struct {
	Name       string
	Interface  string
	DeviceInfo *Info // "device-info" (§6.1), from [CNIDir.Read]; nil if it is missing

	Extra map[string]json.RawMessage // the other keys, as compact JSON
}

// ParseNetworkStatus reads the value of the annotation; source is used in messages only.
// Each device-info in it must follow §3. The error is [FieldErrors].
func ParseNetworkStatus(data []byte, source string) ([]NetworkStatus, error) {
	if len(data) > maxNetworkStatusSize {
		return nil, tooLarge(source, int64(len(data)), maxNetworkStatusSize)
	}
	v := &validator{source: string(data), file: source}
	root, err := v.parseJSON(jsontree.Array, "6")
	if err != nil {
		return nil, err
	}
	list := make([]NetworkStatus, len(root.Children))
	for i, item := range root.Children {
		list[i] = v.validateNetworkStatus(item, fmt.Sprintf("[%d]", i))
	}
	if len(v.faults) > 0 {
		return nil, inOrder(v.faults)
	}
	return list, nil
}

func (v *validator) validateNetworkStatus(n *jsontree.Node, path string) NetworkStatus {
	var s NetworkStatus
	o, ok := v.object(n, path, "6", "name", "interface", "device-info")
	if !ok {
		return s
	}
	accept := func(string) (string, bool) { return "", true }
	s.Name = o.readText("name", false, "6", "the name of a network", accept)
	s.Interface = o.readText("interface", false, "6", "the name of an interface", accept)
	if m := o.findMember("device-info"); m != nil {
		s.DeviceInfo = v.validateInfo(m, joinPath(path, "device-info"))
	}
	s.Extra = o.unknownMembers()
	return s
}

// MarshalJSON returns name, interface and device-info, which must satisfy the
// specification, and then the other keys, sorted.
func (s NetworkStatus) MarshalJSON() ([]byte, error) {
	var o objectEncoder
	o.addRequired("name", s.Name)
	o.addOptional("interface", s.Interface)
	if s.DeviceInfo != nil {
		data, err := s.DeviceInfo.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("marshal network-status of %q: %w", s.Name, err)
		}
		o.addMember("device-info", data)
	}
	out := o.closeObject(s.Extra)
	// Parsing it finds invalid JSON in Extra, and keys there that have a field.
	if err := new(NetworkStatus).UnmarshalJSON(out); err != nil {
		return nil, fmt.Errorf("marshal network-status of %q: %w", s.Name, err)
	}
	return out, nil
}

// UnmarshalJSON reads one element under the rules of [ParseNetworkStatus].
func (s *NetworkStatus) UnmarshalJSON(data []byte) error {
	v := &validator{source: string(data)}
	root, err := v.parseJSON(jsontree.Object, "6")
	if err != nil {
		return err
	}
	parsed := v.validateNetworkStatus(root, "")
	if len(v.faults) > 0 {
		return inOrder(v.faults)
	}
	*s = parsed
	return nil
}
