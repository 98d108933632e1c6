// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"strings"

	"github.com/jackfield/jackfield/internal/base/name"
)

const (
	fieldNetwork   = "network"
	fieldInterface = "interface"
)

func parseNetworks(key, value string) (Networks, error) {
	value, err := checkValue(key, value)
	switch {
	case err != nil:
		return Networks{}, err
	case value == "":
		return Networks{}, &Error{Key: key, Rule: "the value is empty; write auto, none or a list of networks, or " +
			"remove the annotation"}
	case value == keywordAuto:
		return Networks{Mode: NetworksAuto, Key: key}, nil
	case value == keywordNone:
		return Networks{Mode: NetworksNone, Key: key}, nil
	}
	items, err := splitItems(key, value, fieldNetwork, fieldInterface)
	if err != nil {
		return Networks{}, err
	}
	if len(items) == 0 {
		return Networks{Mode: NetworksNone, Key: key}, nil
	}
	networks := make([]Network, 0, len(items))
	index := make(map[Network]int, len(items))
	for _, it := range items {
		n, err := parseNetwork(it)
		if err != nil {
			return Networks{}, err
		}
		identity := n
		identity.Request = Request{}
		if at, ok := index[identity]; ok {
			if networks[at].Optional && !n.Optional {
				networks[at].Request = n.Request
			}
			continue
		}
		index[identity] = len(networks)
		networks = append(networks, n)
	}
	return Networks{Mode: NetworksListed, Key: key, Items: networks}, nil
}

func parseNetwork(it item) (Network, error) {
	n := Network{Request: it.Request}
	text := it.Item
	if it.field == "" && (text == keywordAuto || text == keywordNone) {
		return Network{}, it.newError(text + " must be the only item, not part of a list; a network of that name " +
			"is {network: " + text + "}")
	}
	if namespace, network, ok := strings.Cut(text, "/"); ok && it.field != fieldInterface {
		if !name.IsLabel(namespace) || !name.IsSubdomain(network) {
			return Network{}, it.newError("must be NAMESPACE/NAME, both DNS names in lower case")
		}
		n.Namespace, n.Name = namespace, network
		return n, nil
	}
	if it.field != fieldInterface && name.IsSubdomain(text) {
		n.Name = text
	}
	if it.field != fieldNetwork && isInterface(text) {
		n.Interface = text
	}
	if n.Name != "" || n.Interface != "" {
		return n, nil
	}
	switch it.field {
	case fieldNetwork:
		return Network{}, it.newError("must be NAME or NAMESPACE/NAME of a network, DNS names in lower case")
	case fieldInterface:
		return Network{}, it.newError("must be an interface name: 1 to 15 letters, digits, '_', '-', '.'")
	default:
		return Network{}, it.newError("must be a network, NAME or NAMESPACE/NAME, or an interface such as net1")
	}
}

// isInterface reports whether s can name a network interface. The kernel accepts more characters, but the name becomes
// a directory and a variable.
func isInterface(s string) bool {
	const characters = "-_.ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	return name.IsInterface(s) && strings.Trim(s, characters) == ""
}
