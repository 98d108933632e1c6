// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
)

// NetworkStatusAnnotation is the annotation that holds a list of
// [NetworkStatus] (§6). A tenant can write it: nothing in it is to be trusted.
const NetworkStatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// MaxNetworkStatusSize is the size in bytes to which Kubernetes limits all
// annotations of an object together.
const MaxNetworkStatusSize = 256 << 10

// NetworkStatus is an element of the network-status annotation (§6). All keys but
// these three are kept as they are.
type NetworkStatus struct {
	Name       string
	Interface  string
	DeviceInfo *Info // "device-info" (§6.1); nil when there is none

	Extra map[string]json.RawMessage // the other keys, as compact JSON
}

// ParseNetworkStatus reads the value of the annotation; source is used in
// messages only. Each device-info in it must follow §3. The error is
// [Diagnostics].
func ParseNetworkStatus(data []byte, source string) ([]NetworkStatus, error) {
	if len(data) > MaxNetworkStatusSize {
		return nil, Diagnostics{{File: source, Found: fmt.Sprintf("%d bytes", len(data)), Rule: fmt.Sprintf("at most %d bytes", MaxNetworkStatusSize)}}
	}
	src := string(data)
	k := &checker{collector: &collector{}, src: src}
	root := scan(src, "6", kindList, k.collector)
	var list []NetworkStatus
	for i, item := range root.items {
		list = append(list, k.networkStatus(item, (*keyPath)(nil).item(i)))
	}
	if err := k.err(source, src); err != nil {
		return nil, err
	}
	return list, nil
}

func (k *checker) networkStatus(n *node, path *keyPath) NetworkStatus {
	var s NetworkStatus
	if n.kind == kindBad {
		return s
	}
	o, ok := k.object(n, path, "6", "name", "interface", "device-info")
	if !ok {
		return s
	}
	anyText := func(string) (string, bool) { return "", true }
	s.Name = o.text("name", false, "6", "the name of a network", anyText)
	s.Interface = o.text("interface", false, "6", "the name of an interface", anyText)
	if m := o.get("device-info"); m != nil {
		s.DeviceInfo = k.info(m, path.child("device-info"))
	}
	s.Extra = o.extra()
	return s
}

// Collect sets DeviceInfo from the CNI file name after the plugins ran (§6.1.1).
// When there is no file it is nil, for the key is optional.
func (s *NetworkStatus) Collect(dir CNIDir, name string) error {
	info, err := dir.Collect(name)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	s.DeviceInfo = info
	return nil
}

// MarshalJSON writes name, interface, device-info, which must satisfy the
// specification, and the other keys sorted.
func (s NetworkStatus) MarshalJSON() ([]byte, error) {
	w := &writer{}
	w.open()
	w.text("name", s.Name, true)
	w.text("interface", s.Interface, false)
	if s.DeviceInfo != nil {
		data, err := s.DeviceInfo.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("marshal network-status of %q: %w", s.Name, err)
		}
		w.key("device-info")
		w.Write(data)
	}
	w.close(s.Extra)
	// Reading it back finds keys in Extra that have a field, and what is no JSON.
	if err := new(NetworkStatus).UnmarshalJSON(w.Bytes()); err != nil {
		return nil, fmt.Errorf("marshal network-status of %q: %w", s.Name, err)
	}
	return w.Bytes(), nil
}

// UnmarshalJSON reads one element under the rules of [ParseNetworkStatus].
func (s *NetworkStatus) UnmarshalJSON(data []byte) error {
	k := &checker{collector: &collector{}, src: string(data)}
	parsed := k.networkStatus(scan(k.src, "6", kindMap, k.collector), nil)
	if err := k.err("", k.src); err != nil {
		return err
	}
	*s = parsed
	return nil
}
