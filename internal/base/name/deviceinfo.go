// SPDX-License-Identifier: Apache-2.0

package name

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
)

// MatchInfoFile reports whether a device-info file of the CNI directory belongs to the sandbox, and splits its name.
// network is "<namespace>-<nad>", which cannot be split further; ifName is the interface.
//
// "-<sandboxID>_" can occur more than once. The first place that leaves a valid interface name counts: the names of
// Kubernetes objects have no "_", so no earlier place can match. Names that start with ".", such as temporary files,
// never match. Temporary files of other writers ("…_net1.tmp-1234567") have no valid interface name.
func MatchInfoFile(file, sandboxID string) (network, ifName string, ok bool) {
	if !IsSandboxID(sandboxID) || CheckFile(file) != nil {
		return "", "", false
	}
	sep := "-" + sandboxID + "_"
	for at := 1; ; at++ { // the network's name is not empty
		next := strings.Index(file[at:], sep)
		if next < 0 {
			return "", "", false
		}
		at += next
		if rest := file[at+len(sep):]; IsInterface(rest) {
			return file[:at], rest, true
		}
	}
}

// SplitInfoFile splits the name of a device-info file of Multus, "<namespace>-<nad>-<sandboxID>_<ifName>". It needs a
// sandbox ID for which IsHexSandboxID is true, because no other ID can be told from the network's name before it.
// Without such an ID, all parts are "".
func SplitInfoFile(file string) (network, sandboxID, ifName string) {
	for end := len(file); ; {
		end = strings.LastIndexByte(file[:end], '-')
		if end <= 0 {
			return "", "", ""
		}
		id, _, _ := strings.Cut(file[end+1:], "_")
		if !IsHexSandboxID(id) {
			continue
		}
		if network, ifName, ok := MatchInfoFile(file, id); ok {
			return network, id, ifName
		}
	}
}

// IsHexSandboxID reports whether a sandbox ID has 64 lower case hexadecimal digits, as in containerd and CRI-O.
func IsHexSandboxID(id string) bool {
	return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == ""
}

// IsSandboxID accepts more than CNI's grammar for container IDs, because runtimes choose the form of their sandbox IDs.
func IsSandboxID(id string) bool {
	return id != "" && len(id) <= 255 && strings.IndexByte(id, '/') < 0 && strings.IndexByte(id, 0) < 0
}

// CheckFile returns nil for the name of a file that stays in its directory and that readers do not ignore: not empty,
// no "/" and no NUL, not starting with "." (so neither "." nor ".." nor a temporary file), at most 255 bytes. The
// error is errdefs.ErrInvalidArgument.
func CheckFile(name string) error {
	why := ""
	// Each case is one reason; the first one is reported.
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
