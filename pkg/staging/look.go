// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// ContainersDir is the path, below the state directory stateDir, of the directory that
// holds those of all containers.
func ContainersDir(stateDir string) string { return path.Join(stateDir, "containers") }

// SandboxesDir is the path, below the state directory stateDir, of the directory that
// holds a directory of records for each sandbox.
func SandboxesDir(stateDir string) string { return path.Join(stateDir, "sandboxes") }

// mostRecorded bounds the names in a directory of records that a look reads.
const mostRecorded = 1 << 16

// Recorded are the containers on record of a sandbox, sorted: for whoever looks at a
// state directory that is another process's. Of an unknown sandbox there are none.
func Recorded(host hostfs.Root, stateDir, sandboxID string) ([]string, error) {
	names, err := recordedIn(host, path.Join(SandboxesDir(stateDir), sandboxID))
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, containerSuffix); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// SandboxesOf are the sandboxes that have a container of an ID on record, as a rule
// one.
func SandboxesOf(host hostfs.Root, stateDir, containerID string) ([]string, error) {
	names, err := recordedIn(host, SandboxesDir(stateDir))
	var ids []string
	for _, id := range names {
		if _, err := host.Lstat(path.Join(SandboxesDir(stateDir), id, containerID+containerSuffix)); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, err
}

func recordedIn(host hostfs.Root, dir string) ([]string, error) {
	names, err := host.ReadDir(dir, mostRecorded)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("read the records in %q: %w", dir, err)
	}
	return names, nil
}
