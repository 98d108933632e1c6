// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// known are the edits of one device of cdiSpec, in the form in which a spec has them.
// It does for these edits only what an injection is: no name is there twice, nothing
// is replaced, and the paths are clean.
type known struct {
	env    []string
	nodes  []*specs.DeviceNode
	mounts []rspec.Mount
	hooks  []rspec.Hook

	file int
}

// knownEdits are those of the first device of a file.
func knownEdits(tb testing.TB, file int) *known {
	tb.Helper()
	var spec specs.Spec
	check(tb, json.Unmarshal(cdiSpec(file), &spec))
	k := &known{file: file}
	for _, e := range []specs.ContainerEdits{spec.ContainerEdits, spec.Devices[0].ContainerEdits} {
		k.env = append(k.env, e.Env...)
		k.nodes = append(k.nodes, e.DeviceNodes...)
		for _, m := range e.Mounts {
			k.mounts = append(k.mounts, rspec.Mount{Destination: m.ContainerPath, Source: m.HostPath, Options: m.Options})
		}
		for _, h := range e.Hooks {
			k.hooks = append(k.hooks, rspec.Hook{Path: h.Path, Args: h.Args, Env: h.Env})
		}
	}
	return k
}

// put makes the lists of the spec anew, each at its length.
func (k *known) put(s *rspec.Spec) error {
	s.Process.Env = append(s.Process.Env[:len(s.Process.Env):len(s.Process.Env)], k.env...)

	rules := s.Linux.Resources.Devices
	s.Linux.Resources.Devices = append(make([]rspec.LinuxDeviceCgroup, 0, len(rules)+len(k.nodes)), rules...)
	s.Linux.Devices = make([]rspec.LinuxDevice, len(k.nodes))
	numbers := make([]struct {
		major, minor int64
		mode         os.FileMode
	}, len(k.nodes))
	for i, node := range k.nodes {
		var st unix.Stat_t
		if err := unix.Stat(node.HostPath, &st); err != nil {
			return err
		}
		n := &numbers[i]
		n.major, n.minor, n.mode = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev)), os.FileMode(st.Mode&0o777)
		s.Linux.Devices[i] = rspec.LinuxDevice{Path: node.Path, Type: "c", Major: n.major, Minor: n.minor, FileMode: &n.mode}
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices,
			rspec.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &n.major, Minor: &n.minor, Access: node.Permissions})
	}

	var depths [64]int
	have, deepest := s.Mounts, 0
	at := func(i int) *rspec.Mount {
		if i < len(have) {
			return &have[i]
		}
		return &k.mounts[i-len(have)]
	}
	total := len(have) + len(k.mounts)
	for i := range total {
		depths[i] = strings.Count(at(i).Destination, "/")
		deepest = max(deepest, depths[i])
	}
	s.Mounts = make([]rspec.Mount, 0, total)
	for depth := range deepest + 1 {
		for i := range total {
			if depths[i] == depth {
				s.Mounts = append(s.Mounts, *at(i))
			}
		}
	}
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Type == "" {
			m.Options = slices.Clone(m.Options)
		}
	}

	s.Hooks = &rspec.Hooks{CreateContainer: slices.Clone(k.hooks)}
	for i := range s.Hooks.CreateContainer {
		s.Hooks.CreateContainer[i].Args = slices.Clone(k.hooks[i].Args)
	}
	return nil
}

// same holds that put does what upstream's library does.
func (k *known) same(base *rspec.Spec) error {
	dir, err := os.MkdirTemp("", "known")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(cdiFile(dir, k.file), cdiSpec(k.file), 0o644); err != nil {
		return err
	}
	c, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	theirs, ours := fresh(base), fresh(base)
	if _, err := c.InjectDevices(theirs, cdiQualified(k.file, 0)); err != nil {
		return err
	}
	if err := k.put(ours); err != nil {
		return err
	}
	a, err := json.Marshal(theirs)
	if err != nil {
		return err
	}
	b, err := json.Marshal(ours)
	if err != nil {
		return err
	}
	if string(a) != string(b) {
		return fmt.Errorf("the floor makes\n%s\nand upstream\n%s", b, a)
	}
	return nil
}
