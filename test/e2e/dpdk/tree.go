// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// program is testpmd's path in a root file system.
const program = "/usr/bin/dpdk-testpmd"

// Tree is DPDK and all libraries that it needs, laid out as if installed.
type Tree struct {
	// Dir contains usr, lib and, on architectures that have it, lib64.
	Dir string
	// Version is the version of Debian's packages.
	Version string

	loader   []string // runs a program of the tree on the host
	command  []string // runs testpmd on the host
	plugins  string   // directory of drivers, in Dir
	defaults string   // testpmd's default directory of drivers
}

// Lay lays out DPDK for a test and removes it when the test ends. The test is skipped if DPDK is missing.
// This takes about 20 ms and 25 MB.
func Lay(tb testing.TB) *Tree {
	tb.Helper()
	k := load(tb)
	return lay(tb, k, k.Dirs)
}

// LayOVS is Lay with DPDK and Open vSwitch.
func LayOVS(tb testing.TB) *Tree {
	tb.Helper()
	k := load(tb)
	return lay(tb, k, append(slices.Clone(k.Dirs), k.OVS...))
}

func lay(tb testing.TB, k kit, pkgs []string) *Tree {
	tb.Helper()
	// The tree is directly below /run, because EAL loads no drivers from a directory that all users can
	// write, such as TMPDIR.
	dir, err := os.MkdirTemp("/run", "dpdk-")
	if err != nil {
		tb.Fatal(err)
	}
	t := &Tree{Dir: dir, Version: k.Version}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("clean up: %v", err)
		}
	})
	if err := t.lay(pkgs); err != nil {
		tb.Fatalf("lay out DPDK: %v", err)
	}
	undo, err := t.hide()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := undo(); err != nil {
			tb.Errorf("clean up: %v", err)
		}
	})
	return t
}

func (t *Tree) lay(pkgs []string) error {
	if err := os.Chmod(t.Dir, 0o755); err != nil {
		return err
	}
	for _, p := range pkgs {
		for name, err := range Files(p) {
			if err == nil {
				err = place(filepath.Join(p, name), filepath.Join(t.Dir, name))
			}
			if err != nil {
				return err
			}
		}
	}
	loader, err := t.find("lib/*/ld-linux*.so.*")
	if err != nil {
		return err
	}
	if t.plugins, err = t.find("usr/lib/*/dpdk/pmds-*"); err != nil {
		return err
	}
	t.defaults = strings.TrimPrefix(t.plugins, t.Dir)
	libs := filepath.Dir(loader) + ":" + filepath.Dir(filepath.Dir(t.plugins))
	// With the loader of its own C library, the tree uses no library of this machine.
	t.loader = []string{loader, "--library-path", libs}
	t.command = append(slices.Clone(t.loader), filepath.Join(t.Dir, program))
	return nil
}

// find returns the only file that matches a pattern.
func (t *Tree) find(pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(t.Dir, pattern))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("find %q: %d files, want one: %w", pattern, len(found), errors.Join(err, errdefs.ErrNotFound))
	}
	return found[0], nil
}

// Files yields the files that are needed from an unpacked package: testpmd, shared libraries, and the files
// of Open vSwitch. The names are relative.
func Files(pkg string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := filepath.WalkDir(pkg, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				// Character set conversions, 9 MB.
				if d.Name() == "gconv" {
					return fs.SkipDir
				}
				return nil
			}
			name, err := filepath.Rel(pkg, path)
			if err != nil {
				return err
			}
			if "/"+name != program && !strings.Contains(filepath.Base(name), ".so") && !slices.Contains(ovsFiles, name) {
				return nil
			}
			if !yield(name, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield("", err)
		}
	}
}

// place copies a file or a symbolic link, and creates its parent directories.
func place(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if link, err := os.Readlink(from); err == nil {
		return os.Symlink(link, to)
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// Mounts returns mounts that make DPDK available in a container, read-only and in its usual directories. The
// image needs no distribution. testpmd is then /usr/bin/dpdk-testpmd, and finds its libraries and drivers by
// itself.
func (t *Tree) Mounts() []*cri.Mount {
	var mounts []*cri.Mount
	for _, name := range []string{"usr", "lib", "lib64"} {
		if _, err := os.Stat(filepath.Join(t.Dir, name)); err == nil {
			mounts = append(mounts, &cri.Mount{HostPath: filepath.Join(t.Dir, name), ContainerPath: "/" + name, Readonly: true})
		}
	}
	return mounts
}

// hide mounts the tree's drivers over this machine's, which testpmd on the host would otherwise load as well.
// It returns a function that undoes this. The mount exists only in the jail. Most machines have no DPDK, so
// nothing is mounted.
func (t *Tree) hide() (undo func() error, err error) {
	_, err = os.Stat(t.defaults)
	if errors.Is(err, fs.ErrNotExist) {
		t.command = append(t.command, "-d", t.plugins)
		return func() error { return nil }, nil
	}
	if err == nil {
		err = unix.Mount(t.plugins, t.defaults, "", unix.MS_BIND, "")
	}
	if err != nil {
		return nil, fmt.Errorf("hide this machine's drivers in %q: %w", t.defaults, err)
	}
	return func() error { return unix.Unmount(t.defaults, unix.MNT_DETACH) }, nil
}

// CPUs returns a CPU for the host's testpmd and a CPU for the container's. They are equal if this process has
// only one.
func CPUs() (host, container int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0, fmt.Errorf("find CPUs: %w", err)
	}
	var cpus []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus[0], cpus[len(cpus)-1], nil
}
