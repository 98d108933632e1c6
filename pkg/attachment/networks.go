// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const (
	maxAnnotation = 64 << 10 // bytes of the networks annotation
	maxSelections = 256      // networks in it
)

// selection is one network of the annotation, with the interface that it requests. The rest
// of the annotation is ignored, because a tenant wrote its paths and devices.
type selection struct {
	network string // namespace/name
	ifName  string // "" if Multus chooses
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

// NamedNetworks returns the networks in the networks annotation, as namespace/name, in its
// order.
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
	var networks []struct {
		Name             string `json:"name"`
		Namespace        string `json:"namespace"`
		Interface        string `json:"interface"`
		InterfaceRequest string `json:"interfaceRequest"`
	}
	if err := (jsontree.Decoder{}).Unmarshal(value, &networks); err != nil {
		return nil, err
	}
	for _, n := range networks {
		name := n.Name
		if n.Namespace != "" {
			name = n.Namespace + "/" + name
		}
		if list, err = addSelection(list, name, cmp.Or(n.Interface, n.InterfaceRequest)); err != nil {
			return nil, err
		}
	}
	return list, nil
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

// networkOf returns the network of a device-info file. The file's name has "-" between
// namespace and name, so it can be split in several ways. Multus' record decides; then a
// network of the annotation if exactly one matches, and then the pod's namespace. note
// describes an inconsistency.
func networkOf(e *deviceinfo.Entry, d *delegate, named []selection, podNamespace string) (name, note string) {
	if d != nil && d.Name != "" {
		if dashed(d.Name) != e.Network {
			note = fmt.Sprintf("the file's name is of network %s, but Multus attached %s as %s", diag.Quote(e.Network), diag.Quote(d.Name), e.IfName)
		}
		return d.Name, note
	}
	var matching []string
	for _, s := range named {
		if dashed(s.network) == e.Network && !slices.Contains(matching, s.network) {
			matching = append(matching, s.network)
		}
	}
	switch len(matching) {
	case 1:
		return matching[0], ""
	case 0:
		// Outside of pods the namespace in the file's name is always default.
		rest, ok := strings.CutPrefix(e.Network, cmp.Or(podNamespace, "default")+"-")
		switch {
		case !ok || rest == "":
		case podNamespace == "":
			return rest, ""
		default:
			return podNamespace + "/" + rest, ""
		}
		return e.Network, ""
	}
	return e.Network, fmt.Sprintf("the file's name matches the networks %s, and Multus has no record of the sandbox to decide", strings.Join(matching, " and "))
}

// dashed returns a network's name as Multus writes it into a file's name.
func dashed(name string) string { return strings.ReplaceAll(name, "/", "-") }
