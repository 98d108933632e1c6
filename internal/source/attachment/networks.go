// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const (
	maxAnnotation = 256 << 10 // bytes of the networks annotation
	maxSelections = 256       // networks in it
)

// selection is one network of the annotation, with its requested interface. The annotation's other
// keys are ignored, because a tenant wrote the paths and devices in them.
type selection struct {
	network string // namespace/name
	ifName  string // "" if Multus chooses
}

// parseNetworks parses the networks annotation in its order: a comma-separated list of
// [namespace/]name[@interface], or a JSON list of maps (Multi-Network CRD specification, §4.1).
func parseNetworks(value, podNamespace string) ([]selection, error) {
	if len(value) > maxAnnotation {
		return nil, fmt.Errorf("annotation %s has %d bytes, more than the %d that Kubernetes allows for all "+
			"annotations: %w", NetworksAnnotation, len(value), maxAnnotation, errdefs.ErrInvalidArgument)
	}
	var list []selection
	var err error
	if strings.ContainsAny(value, `[{"`) {
		list, err = parseNetworkList(value)
	} else {
		list = splitNetworks(value)
	}
	if len(list) > maxSelections {
		err = fmt.Errorf("more than %d networks; request fewer: %w", maxSelections, errdefs.ErrInvalidArgument)
	}
	for i := 0; err == nil && i < len(list); i++ {
		err = list[i].complete(podNamespace)
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", NetworksAnnotation, err)
	}
	return list, nil
}

// complete checks the names, and adds the pod's namespace to a network without one.
func (s *selection) complete(podNamespace string) error {
	if err := checkNetwork(s.network); err != nil {
		return err
	}
	if s.ifName != "" {
		if err := checkIfName(s.ifName); err != nil {
			return err
		}
	}
	if strings.Contains(s.network, "/") {
		return nil
	}
	s.network = podNamespace + "/" + s.network
	return checkNetwork(s.network)
}

// NamedNetworks returns the networks in the annotation as namespace/name, in its order.
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

// splitNetworks parses the short form of the annotation: a comma list of [NAMESPACE/]NAME[@INTERFACE].
func splitNetworks(value string) (list []selection) {
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			name, ifName, _ := strings.Cut(item, "@")
			list = append(list, selection{strings.TrimSpace(name), strings.TrimSpace(ifName)})
		}
	}
	return list
}

// parseNetworkList parses the JSON form of the annotation. Multus reads interfaceRequest as an old name of interface.
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
		if n.Namespace != "" {
			n.Name = n.Namespace + "/" + n.Name
		}
		list = append(list, selection{n.Name, cmp.Or(n.Interface, n.InterfaceRequest)})
	}
	return list, nil
}

// networkOf returns the network of a device-info file. The file's name has "-" between namespace
// and name, so it can be split in several ways. Multus' record decides, then a network of the
// annotation if exactly one matches, then the pod's network-status, and then the pod's namespace. note
// describes an inconsistency.
func (s *Search) networkOf(e *deviceinfo.Entry, rec *multusRecord, named []selection) (name, note string) {
	if d := rec.delegateOf(e.IfName); d != nil && d.Name != "" {
		// Multus records the cluster's default network without a namespace, but puts the pod's namespace into
		// the file's name.
		isDefault := !strings.Contains(d.Name, "/") && e.Network == dashed(s.q.Namespace+"/"+d.Name)
		if dashed(d.Name) != e.Network && !isDefault {
			note = fmt.Sprintf("the file's name is of network %s, but Multus attached %s as %s", diag.Quote(e.Network),
				diag.Quote(d.Name), e.IfName)
		}
		return d.Name, note
	}
	var matching []string
	for _, n := range named {
		if dashed(n.network) == e.Network && !slices.Contains(matching, n.network) {
			matching = append(matching, n.network)
		}
	}
	if len(matching) != 1 {
		for _, network := range s.kubelet.statusNetworks(e.IfName) {
			if dashed(network) == e.Network {
				return network, "the network's name is from the pod's network-status, which a user can write"
			}
		}
	}
	switch len(matching) {
	case 1:
		return matching[0], ""
	case 0:
		// Outside of pods the namespace in the file's name is always default.
		if rest, ok := strings.CutPrefix(e.Network, cmp.Or(s.q.Namespace, "default")+"-"); ok && rest != "" {
			return strings.TrimPrefix(s.q.Namespace+"/"+rest, "/"), ""
		}
		return e.Network, ""
	}
	return e.Network, fmt.Sprintf("the file's name matches the networks %s, and Multus' record cannot decide: %s",
		strings.Join(matching, " and "), rec.describeGap(e.IfName))
}

// dashed returns a network's name in the spelling of Multus' file names.
func dashed(name string) string { return strings.ReplaceAll(name, "/", "-") }
