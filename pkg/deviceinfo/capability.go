// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// CapabilityKey is the CNI capability by which a plugin receives the path of the attachment's device-info file (§5.1):
// {"runtimeConfig":{"CNIDeviceInfoFile":"/var/run/…"}}.
const CapabilityKey = "CNIDeviceInfoFile"

// CapabilityPath returns the path in the configuration that a CNI plugin reads from its standard input (§5.1.2); ok
// is false without the argument. [CNIDir.Name] takes the path.
func CapabilityPath(stdin []byte) (path string, ok bool, err error) {
	var c struct {
		RuntimeConfig map[string]*jsontree.Node `json:"runtimeConfig"`
	}
	// Other keys of a CNI configuration have any value. Keys are compared with their case, as CNI plugins do.
	if err := (jsontree.Decoder{}).Unmarshal(string(stdin), &c); err != nil {
		return "", false, fmt.Errorf("read CNI configuration: %w", err)
	}
	n, ok := c.RuntimeConfig[CapabilityKey]
	switch {
	case !ok:
		return "", false, nil
	case n != nil && n.Kind == jsontree.String && n.Text != "":
		return n.Text, true, nil
	}
	found := "null"
	if n != nil {
		found = excerpt(string(stdin[n.Start:n.End]))
	}
	return "", false, fmt.Errorf("read runtimeConfig.%s: invalid value %s: must be the path of a file (%s): %w",
		CapabilityKey, found, inSection("5.1"), errdefs.ErrInvalidArgument)
}
