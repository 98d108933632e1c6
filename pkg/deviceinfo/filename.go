// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/name"
)

// The directories of the files, as host paths.
const (
	DefaultDPDir  = "/var/run/k8s.cni.cncf.io/devinfo/dp"  // §4.1
	DefaultCNIDir = "/var/run/k8s.cni.cncf.io/devinfo/cni" // §4.2
)

// dpSuffix is the end of the name of every device plugin file (§4.1).
const dpSuffix = "-device.json"

// dpFileName returns the name of a device plugin's file (§4.1),
// "<resourceName>-<deviceID>-device.json" with each "/" replaced by "-". The specification
// requires the replacement in the resource name; device plugins do it in the ID too.
// Different pairs can have the same name ("a/b" and "a-b").
//
// The error for an empty part, and for a result that is not a safe file name, is
// errdefs.ErrInvalidArgument.
func dpFileName(resource, deviceID string) (string, error) {
	if resource == "" || deviceID == "" {
		return "", fmt.Errorf("name device-info file of resource %q, device %q: neither may be empty: %w",
			resource, deviceID, errdefs.ErrInvalidArgument)
	}
	file := strings.ReplaceAll(resource+"-"+deviceID+dpSuffix, "/", "-")
	if err := name.CheckFile(file); err != nil {
		return "", fmt.Errorf("name device-info file of resource %q, device %q: %w", resource, deviceID, err)
	}
	return file, nil
}

// CNIFileName returns the name that Multus uses for the file of a network attachment
// (§4.2), which is unique: "<namespace>-<nad>-<sandboxID>_<ifName>", with each "/" in
// namespace and nad replaced by "-".
//
// The error is errdefs.ErrInvalidArgument for an empty part, a sandbox ID with "/", an
// invalid interface name, a result that is not a safe file name, and a result that
// readers would split differently. The last is impossible with the names of Kubernetes
// objects, which have no "_".
func CNIFileName(namespace, nad, sandboxID, ifName string) (string, error) {
	fail := func(why string) (string, error) {
		return "", fmt.Errorf("name device-info file of network %q in namespace %q, interface %q, sandbox %q: %s: %w",
			nad, namespace, ifName, sandboxID, why, errdefs.ErrInvalidArgument)
	}
	switch {
	case namespace == "" || nad == "":
		return fail("neither network nor namespace may be empty")
	case !name.IsSandboxID(sandboxID):
		return fail(`a sandbox ID is not empty and has neither "/" nor NUL`)
	case !name.IsInterface(ifName):
		return fail(`an interface name has 1 to 15 bytes, without "/", ":" and spaces`)
	}
	network := strings.ReplaceAll(namespace+"-"+nad, "/", "-")
	file := network + "-" + sandboxID + "_" + ifName
	if err := name.CheckFile(file); err != nil {
		return "", fmt.Errorf("name device-info file of network %q, interface %q, sandbox %q: %w",
			nad, ifName, sandboxID, err)
	}
	if n, i, ok := name.MatchInfoFile(file, sandboxID); !ok || n != network || i != ifName {
		return fail("the name could be split in two ways")
	}
	return file, nil
}
