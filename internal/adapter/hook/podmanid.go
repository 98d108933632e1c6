// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/hex"
	"hash/fnv"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// podmanID returns the ID that Podman gave the container. No field of the configuration has it:
//   - The container's cgroup is named for it, below the cgroup of its pod.
//   - Rootless Podman may have no cgroup. Files mounted into the container are in the directory
//     DRIVER-containers/ID. Some belong to the container whose network this one joins, but
//     /run/.containerenv is always its own.
//
// A configuration of another program gets an ID derived from its root.
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
	// A hash collision gains nothing: its author could set the fields above just as well.
	sum := fnv.New128a()
	sum.Write([]byte(root))
	return "root-" + hex.EncodeToString(sum.Sum(nil))
}

// idInStorage returns the container of a file in Podman's storage.
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
