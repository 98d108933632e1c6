// SPDX-License-Identifier: Apache-2.0

package hook

import (
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// userNamespaceOf returns the container's own user namespace, nil if it has none. pid is its first
// process. Before that exists pid is 0, and the namespace is the one that the configuration creates
// or joins.
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
			return &resolve.UserNS{PID: hostfs.NamespaceProcess(n.Path)}
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
