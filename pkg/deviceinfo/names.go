// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
)

// Where the files are, as host paths.
const (
	DefaultDPDir  = "/var/run/k8s.cni.cncf.io/devinfo/dp"  // §4.1
	DefaultCNIDir = "/var/run/k8s.cni.cncf.io/devinfo/cni" // §4.2
)

// dpSuffix ends the name of every device plugin file (§4.1).
const dpSuffix = "-device.json"

// maxIfName is the longest name of a network interface (IFNAMSIZ, less the NUL).
const maxIfName = 15

// DPFileName is the name of a device plugin's file (§4.1),
// "<resourceName>-<deviceID>-device.json" with each "/" replaced by "-". The
// specification asks for that in the resource name; device plugins do it in the
// ID too. Different pairs may have the same name ("a/b" and "a-b").
//
// A part that is empty, and a result that is no safe file name, is
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

// CNIFileName is a name that is unique per network attachment (§4.2), the one
// that Multus gives: "<namespace>-<nad>-<sandboxID>_<ifName>", with each "/" in
// namespace and nad replaced by "-".
//
// errdefs.ErrInvalidArgument is a part that is empty, a sandbox ID with "/", an
// ifName that no interface can have, a result that is no safe file name, and one
// that [MatchCNIFileName] would read differently (which the names of Kubernetes
// objects, having no "_", cannot cause).
func CNIFileName(namespace, nad, sandboxID, ifName string) (string, error) {
	fail := func(why string) (string, error) {
		return "", fmt.Errorf("name device-info file of network %q in namespace %q, interface %q, sandbox %q: %s: %w",
			nad, namespace, ifName, sandboxID, why, errdefs.ErrInvalidArgument)
	}
	switch {
	case namespace == "" || nad == "":
		return fail("neither network nor namespace may be empty")
	case !validSandboxID(sandboxID):
		return fail(`a sandbox ID is not empty and has neither "/" nor NUL`)
	case !validIfName(ifName):
		return fail(`an interface name has 1 to 15 bytes, without "/", ":" and spaces`)
	}
	network := strings.ReplaceAll(namespace+"-"+nad, "/", "-")
	name := network + "-" + sandboxID + "_" + ifName
	if err := CheckFileName(name); err != nil {
		return "", fmt.Errorf("name device-info file of network %q, interface %q, sandbox %q: %w", nad, ifName, sandboxID, err)
	}
	if n, i, ok := MatchCNIFileName(name, sandboxID); !ok || n != network || i != ifName {
		return fail("the name could be taken apart in two ways")
	}
	return name, nil
}

// MatchCNIFileName reports whether a file in the CNI directory is one of the
// sandbox, and takes its name apart. network is "<namespace>-<nad>", which
// cannot be split again; ifName is the interface.
//
// "-<sandboxID>_" may occur more than once. The first place that leaves the name
// of an interface wins: the names of Kubernetes objects have no "_", so no
// place before the real one can match. Names that start with "." are
// temporary or hidden files and match never.
func MatchCNIFileName(name, sandboxID string) (network, ifName string, ok bool) {
	if !validSandboxID(sandboxID) || CheckFileName(name) != nil {
		return "", "", false
	}
	sep := "-" + sandboxID + "_"
	for from := 0; ; {
		i := strings.Index(name[from:], sep)
		if i < 0 {
			return "", "", false
		}
		i += from
		if rest := name[i+len(sep):]; i > 0 && validIfName(rest) {
			return name[:i], rest, true
		}
		from = i + 1
	}
}

// CheckFileName is nil for a name that cannot lead out of its directory and is
// not one that readers ignore: not empty, no "/" and no NUL, not starting with
// "." (so neither "." nor ".." nor a temporary file), at most 255 bytes. The
// error is errdefs.ErrInvalidArgument.
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

// validSandboxID is wider than CNI's grammar for container IDs: whatever a
// runtime uses is matched as it is.
func validSandboxID(id string) bool {
	return id != "" && len(id) <= 255 && strings.IndexByte(id, '/') < 0 && strings.IndexByte(id, 0) < 0
}

// validIfName is the kernel's rule for names of interfaces. It also tells the
// files of other writers that are not yet in place ("…_net1.tmp-1234567").
func validIfName(s string) bool {
	return s != "" && len(s) <= maxIfName && s != "." && s != ".." &&
		strings.IndexFunc(s, func(r rune) bool {
			return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r)
		}) < 0
}
