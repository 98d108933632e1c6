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

// DPFileName returns the name of a device plugin's file (§4.1),
// "<resourceName>-<deviceID>-device.json" with each "/" replaced by "-". The specification
// requires the replacement in the resource name; device plugins do it in the ID too.
// Different pairs can have the same name ("a/b" and "a-b").
//
// The error for an empty part, and for a result that is not a safe file name, is
// errdefs.ErrInvalidArgument.
func DPFileName(resource, deviceID string) (string, error) {
	if resource == "" || deviceID == "" {
		return "", fmt.Errorf("name device-info file of resource %q, device %q: neither may be empty: %w", resource, deviceID, errdefs.ErrInvalidArgument)
	}
	name := strings.ReplaceAll(resource+"-"+deviceID+dpSuffix, "/", "-")
	if err := CheckFileName(name); err != nil {
		return "", fmt.Errorf("name device-info file of resource %q, device %q: %w", resource, deviceID, err)
	}
	return name, nil
}

// CNIFileName returns the name that Multus uses for the file of a network attachment
// (§4.2), which is unique: "<namespace>-<nad>-<sandboxID>_<ifName>", with each "/" in
// namespace and nad replaced by "-".
//
// The error is errdefs.ErrInvalidArgument for an empty part, a sandbox ID with "/", an
// invalid interface name, a result that is not a safe file name, and a result that
// [MatchCNIFileName] would split differently. The last is impossible with the names of
// Kubernetes objects, which have no "_".
func CNIFileName(namespace, nad, sandboxID, ifName string) (string, error) {
	fail := func(why string) (string, error) {
		return "", fmt.Errorf("name device-info file of network %q in namespace %q, interface %q, sandbox %q: %s: %w",
			nad, namespace, ifName, sandboxID, why, errdefs.ErrInvalidArgument)
	}
	switch {
	case namespace == "" || nad == "":
		return fail("neither network nor namespace may be empty")
	case !isSandboxID(sandboxID):
		return fail(`a sandbox ID is not empty and has neither "/" nor NUL`)
	case !name.IsInterface(ifName):
		return fail(`an interface name has 1 to 15 bytes, without "/", ":" and spaces`)
	}
	network := strings.ReplaceAll(namespace+"-"+nad, "/", "-")
	file := network + "-" + sandboxID + "_" + ifName
	if err := CheckFileName(file); err != nil {
		return "", fmt.Errorf("name device-info file of network %q, interface %q, sandbox %q: %w", nad, ifName, sandboxID, err)
	}
	if n, i, ok := MatchCNIFileName(file, sandboxID); !ok || n != network || i != ifName {
		return fail("the name could be split in two ways")
	}
	return file, nil
}

// MatchCNIFileName reports whether a file in the CNI directory belongs to the sandbox, and
// splits its name. network is "<namespace>-<nad>", which cannot be split further; ifName is
// the interface.
//
// "-<sandboxID>_" may occur more than once. The first place that leaves a valid interface
// name counts: the names of Kubernetes objects have no "_", so no earlier place can match.
// Names that start with ".", such as temporary files, never match. Temporary files of other writers
// ("…_net1.tmp-1234567") have no valid interface name.
func MatchCNIFileName(file, sandboxID string) (network, ifName string, ok bool) {
	if !isSandboxID(sandboxID) || CheckFileName(file) != nil {
		return "", "", false
	}
	sep := "-" + sandboxID + "_"
	for at := 1; ; at++ { // the network's name is not empty
		next := strings.Index(file[at:], sep)
		if next < 0 {
			return "", "", false
		}
		at += next
		if rest := file[at+len(sep):]; name.IsInterface(rest) {
			return file[:at], rest, true
		}
	}
}

// SplitCNIFileName splits the name of a file of Multus, "<namespace>-<nad>-<sandboxID>_<ifName>"
// (§4.2). It needs a sandbox ID of 64 lower case hexadecimal digits, as containerd and CRI-O use
// it, because another ID cannot be told from the network's name before it. Without one, all parts
// are "".
func SplitCNIFileName(name string) (network, sandboxID, ifName string) {
	for end := len(name); ; {
		end = strings.LastIndexByte(name[:end], '-')
		if end <= 0 {
			return "", "", ""
		}
		rest := name[end+1:]
		id, _, _ := strings.Cut(rest, "_")
		if !isHexID(id) {
			continue
		}
		if network, ifName, ok := MatchCNIFileName(name, id); ok {
			return network, id, ifName
		}
	}
}

// isHexID reports whether a sandbox ID has the form that containerd and CRI-O use.
func isHexID(id string) bool { return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == "" }

// CheckFileName returns nil for a name that stays in its directory and that readers do not
// ignore: not empty, no "/" and no NUL, not starting with "." (so neither "." nor ".." nor
// a temporary file), at most 255 bytes. The error is errdefs.ErrInvalidArgument.
func CheckFileName(name string) error {
	why := ""
	switch {
	case name == "":
		why = "it is empty"
	case name[0] == '.':
		why = `it starts with "."`
	case strings.Contains(name, "/"):
		why = `it contains "/"`
	case strings.IndexByte(name, 0) >= 0:
		why = "it contains NUL"
	case len(name) > 255:
		why = fmt.Sprintf("it has %d bytes, more than 255", len(name))
	default:
		return nil
	}
	return fmt.Errorf("file name %q: %s: %w", name, why, errdefs.ErrInvalidArgument)
}

// isSandboxID accepts more than CNI's grammar for container IDs, because runtimes are free
// in their sandbox IDs.
func isSandboxID(id string) bool {
	return id != "" && len(id) <= 255 && strings.IndexByte(id, '/') < 0 && strings.IndexByte(id, 0) < 0
}
