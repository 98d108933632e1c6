// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"strconv"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/resolve"
)

// userNamespaceOf is the container's own user namespace, nil where it has none. pid
// is its first process, 0 where there is none yet: then it is the one that the
// configuration makes, or that of the process whose namespace it joins.
func userNamespaceOf(spec *rspec.Spec, pid int) *resolve.UserNS {
	if spec.Linux == nil {
		return nil
	}
	for i := range spec.Linux.Namespaces {
		n := &spec.Linux.Namespaces[i]
		switch {
		case n.Type != rspec.UserNamespace:
			continue
		case pid > 0:
			return &resolve.UserNS{PID: pid}
		case n.Path != "":
			return &resolve.UserNS{PID: processOf(n.Path)}
		}
		return &resolve.UserNS{UIDs: idMaps(spec.Linux.UIDMappings), GIDs: idMaps(spec.Linux.GIDMappings)}
	}
	return nil
}

func idMaps(list []rspec.LinuxIDMapping) []resolve.IDMap {
	out := make([]resolve.IDMap, len(list))
	for i, m := range list {
		out[i] = resolve.IDMap{Inside: m.ContainerID, Outside: m.HostID, Size: m.Size}
	}
	return out
}

// processOf is the process that a namespace's path is of; 0 for any other path.
func processOf(path string) int {
	pid, proc := strings.CutPrefix(path, "/proc/")
	pid, user := strings.CutSuffix(pid, "/ns/user")
	n, err := strconv.ParseUint(pid, 10, 31)
	if !proc || !user || err != nil {
		return 0
	}
	return int(n)
}
