// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const (
	maxAnnotation = 64 << 10 // bytes of the networks annotation
	maxSelections = 256      // networks in it
)

// selection is one network that a pod's author named, and the interface they
// would like it to have. Nothing else of the annotation is looked at: paths and
// devices in it are a tenant's word.
type selection struct {
	network string // namespace/name
	ifName  string // "" where they leave it to Multus
}

// parseNetworks reads the networks annotation: a comma list of
// [namespace/]name[@interface], or a JSON list of maps (Multi-Network CRD
// specification, §4.1), in its order.
func parseNetworks(value, podNamespace string) ([]selection, error) {
	if len(value) > maxAnnotation {
		return nil, fmt.Errorf("annotation %s has %d bytes, more than %d: %w", NetworksAnnotation, len(value), maxAnnotation, errdefs.ErrInvalidArgument)
	}
	var (
		list []selection
		err  error
	)
	if strings.ContainsAny(value, `[{"`) {
		list, err = parseNetworkList(value)
	} else {
		list, err = splitNetworks(value)
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", NetworksAnnotation, err)
	}
	for i, s := range list {
		if strings.Contains(s.network, "/") {
			continue
		}
		list[i].network = podNamespace + "/" + s.network
		if err := checkNetwork(list[i].network); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", NetworksAnnotation, err)
		}
	}
	return list, nil
}

// NamedNetworks returns the networks that the networks annotation names, as namespace/name,
// in its order.
func NamedNetworks(value, podNamespace string) ([]string, error) {
	list, err := parseNetworks(value, podNamespace)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.network
	}
	return names, nil
}

func splitNetworks(value string) (list []selection, err error) {
	for item := range strings.SplitSeq(value, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		name, ifName, _ := strings.Cut(item, "@")
		if list, err = addSelection(list, strings.TrimSpace(name), strings.TrimSpace(ifName)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func parseNetworkList(value string) (list []selection, err error) {
	r, err := newJSONReader([]byte(value))
	if err != nil {
		return nil, err
	}
	err = r.array(func(int) error {
		var name, namespace, ifName, oldIfName string
		fields := map[string]*string{"name": &name, "namespace": &namespace, "interface": &ifName, "interfaceRequest": &oldIfName}
		err := r.object(func(key string) (err error) {
			if s, ok := fields[key]; ok {
				*s, err = r.optionalText()
				return err
			}
			return r.skip()
		})
		if err != nil {
			return err
		}
		if namespace != "" {
			name = namespace + "/" + name
		}
		if ifName == "" {
			ifName = oldIfName
		}
		list, err = addSelection(list, name, ifName)
		return err
	})
	if err == nil {
		err = r.end()
	}
	return list, err
}

func addSelection(list []selection, network, ifName string) ([]selection, error) {
	if err := checkNetwork(network); err != nil {
		return nil, err
	}
	if ifName != "" {
		if err := checkIfName(ifName); err != nil {
			return nil, err
		}
	}
	if len(list) >= maxSelections {
		return nil, fmt.Errorf("more than %d networks: %w", maxSelections, errdefs.ErrInvalidArgument)
	}
	return append(list, selection{network, ifName}), nil
}

// nameOf is the network of a device-info file, whose name holds namespace and
// name with "-" between, which cannot be split without knowing. Multus' own
// record knows; after it come the networks that the pod's author named, as far
// as only one of them fits, then the pod's namespace. note says what is odd.
func nameOf(e *deviceinfo.Entry, d *delegate, named []selection, podNamespace string) (name, note string) {
	if d != nil && d.name != "" {
		if dashed(d.name) != e.Network {
			note = fmt.Sprintf("the file is named for network %s, but Multus attached %s as %s", quote(e.Network), quote(d.name), e.IfName)
		}
		return d.name, note
	}
	var fitting []string
	for _, s := range named {
		if dashed(s.network) == e.Network && !slices.Contains(fitting, s.network) {
			fitting = append(fitting, s.network)
		}
	}
	switch len(fitting) {
	case 1:
		return fitting[0], ""
	case 0:
		if rest, ok := strings.CutPrefix(e.Network, podNamespace+"-"); ok && podNamespace != "" && rest != "" {
			return podNamespace + "/" + rest, ""
		}
		return e.Network, ""
	}
	return e.Network, fmt.Sprintf("the file's name fits the networks %s alike, and Multus' record of the sandbox is not there to tell", strings.Join(fitting, " and "))
}

// dashed is how Multus writes a network's name into a file's.
func dashed(name string) string { return strings.ReplaceAll(name, "/", "-") }
