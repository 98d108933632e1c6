// SPDX-License-Identifier: Apache-2.0

package resolve

import "strings"

// Source is the kind of request that an item is of: "cdi" for a CDI device,
// "network" for a network attachment, "resource" for what the kubelet allocated.
func (it *Item) Source() string {
	switch {
	case strings.HasPrefix(it.Request, "CDI device "):
		return "cdi"
	case strings.HasPrefix(it.Request, "network "):
		return "network"
	default:
		return "resource"
	}
}
