// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// Tree has DPDK and all it is linked against, as they would be installed.
type Tree struct {
	// Dir has usr, lib and, where the architecture has one, lib64.
	Dir string
	// Version is that of Debian's packages.
	Version string

	loader   []string // runs a program of the tree on the host
	command  []string // runs testpmd on the host
	plugins  string   // directory of drivers, in Dir
	defaults string   // where testpmd looks for drivers by itself
}

// Lay lays DPDK out for a test, which is skipped where it cannot be had, and
// removes it when the test ends. It takes about 20 ms and 25 MB.
func Lay(tb testing.TB) *Tree {
	tb.Helper()
	k := load(tb)
	return lay(tb, k, k.Dirs)
}

// LayOVS is Lay with Open vSwitch beside DPDK.
func LayOVS(tb testing.TB) *Tree {
	tb.Helper()
	k := load(tb)
	return lay(tb, k, append(slices.Clone(k.Dirs), k.OVS...))
}

func lay(tb testing.TB, k kit, pkgs []string) *Tree {
	tb.Helper()
	// Directly below /run: EAL takes no drivers from below a directory that is
	// writable for all, as TMPDIR is.
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
		for name, err := range files(p) {
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
	// The C library's own loader keeps this machine's libraries out.
	t.loader = []string{loader, "--library-path", libs}
	t.command = append(slices.Clone(t.loader), filepath.Join(t.Dir, program))
	return nil
}

// find returns the one file of a pattern.
func (t *Tree) find(pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(t.Dir, pattern))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("find %q: %d files, want one: %w", pattern, len(found), errors.Join(err, errdefs.ErrNotFound))
	}
	return found[0], nil
}

// files yields what is needed of an unpacked package: testpmd, shared libraries, and
// what Open vSwitch runs. The names are relative.
func files(pkg string) func(func(string, error) bool) {
	return func(yield func(string, error) bool) {
		err := filepath.WalkDir(pkg, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				// Conversions between character sets, 9 MB of them.
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

// place copies a file or a symbolic link, with the directories above it.
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

// Mounts gives a container DPDK, read-only, where it would be installed: the image
// needs no distribution and has none. testpmd is /usr/bin/dpdk-testpmd then and
// finds its libraries and drivers by itself.
func (t *Tree) Mounts() []*cri.Mount {
	var mounts []*cri.Mount
	for _, name := range []string{"usr", "lib", "lib64"} {
		if _, err := os.Stat(filepath.Join(t.Dir, name)); err == nil {
			mounts = append(mounts, &cri.Mount{HostPath: filepath.Join(t.Dir, name), ContainerPath: "/" + name, Readonly: true})
		}
	}
	return mounts
}

// hide puts the tree's drivers in the place of this machine's, which testpmd on
// the host would load as well, and returns how to undo that. The mount is the
// jail's. Most machines have no DPDK, and nothing is done.
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

// CPUs returns a CPU for the host's testpmd and one for the container's, which are
// the same where this process has only one.
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
