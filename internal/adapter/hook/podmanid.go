// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/hex"
	"hash/fnv"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// podmanID derives the container's ID from Podman's configuration, which has no field for it:
// - The name of the container's cgroup contains the ID. It comes after the cgroup of the pod.
// - Rootless Podman may have no cgroup. The host paths of files that Podman mounts contain
// DRIVER-containers/ID. Some belong to the container whose network this container joins, but
// /run/.containerenv is always its own.
//
// For a configuration of another program, the ID is derived from the root.
func podmanID(spec *rspec.Spec) string {
	if spec.Linux != nil {
		if id, ok := findHexID(spec.Linux.CgroupsPath); ok {
			return id
		}
	}
	found := ""
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		if id, ok := idInStorage(m.Source); ok && (found == "" || m.Destination == "/run/.containerenv") {
			found = id
		}
	}
	if found != "" {
		return found
	}
	root := ""
	if spec.Root != nil {
		root = spec.Root.Path
	}
	// An author gains nothing from a hash collision, because they can set the fields above as well.
	sum := fnv.New128a()
	sum.Write([]byte(root))
	return "root-" + hex.EncodeToString(sum.Sum(nil))
}

// idInStorage returns the ID of the container that owns a file in Podman's storage.
func idInStorage(file string) (string, bool) {
	_, name, ok := strings.Cut(file, "-containers/")
	name, _, _ = strings.Cut(name, "/")
	id, isID := findHexID(name)
	return id, ok && isID && id == name
}

// findHexID returns the last run of exactly 64 hexadecimal digits in s.
func findHexID(s string) (id string, ok bool) {
	isOther := func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) }
	for run := range strings.FieldsFuncSeq(s, isOther) {
		if len(run) == 64 {
			id, ok = run, true
		}
	}
	return id, ok
}
