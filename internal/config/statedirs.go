// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/schema"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// StateDirs returns the state directories that jackfield-nri can be using, most likely first: from
// the file, from the last good configuration, and the default. Programs use it to find the daemon
// while the file is faulty, or after its stateDir was changed. file is as in [LoadOrDefault].
func StateDirs(host hostfs.Root, file string) (dirs []string) {
	add := func(dir string) {
		if hostfs.CheckPath(dir) == nil && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	c, err := LoadOrDefault(host, file, Options{})
	if err == nil {
		add(c.StateDir)
	} else {
		add(readStateDir(host, file))
	}
	if err == nil && file != "" {
		return dirs // the caller chose this file
	}
	if _, path, err := Locate(host, file); err == nil {
		if c, err := LoadCopy(host, DefaultCopyPath, path); err == nil {
			add(c.StateDir)
		}
	}
	add(Default().StateDir)
	return dirs
}

// readStateDir returns the key stateDir of a file with other faults, or "".
func readStateDir(host hostfs.Root, file string) string {
	root, path, err := Locate(host, file)
	if err != nil {
		return ""
	}
	data, err := root.ReadFile(path, MaxSize)
	if err != nil {
		return ""
	}
	document, _ := schema.ParseYAML(string(data))
	if n := document.Member("stateDir"); n != nil && n.Kind == jsontree.String {
		return n.Text
	}
	return ""
}
