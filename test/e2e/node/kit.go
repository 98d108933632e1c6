// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/test/parts"
)

// Generation is a version of a container runtime that tests run against.
type Generation string

const (
	// V1 is containerd 1.7 with NRI 0.6.
	V1 Generation = "containerd-1.7"
	// V2 is containerd 2.x with NRI 0.8 or later.
	V2 Generation = "containerd-2"
	// V24 is containerd 2.4 with NRI 0.12. It is built from source, because the distribution of the others
	// does not have it.
	V24 Generation = "containerd-2.4"
	// CRIO is CRI-O 1.36 with NRI 0.11 and runc, on cgroups of version 1 where the machine has them.
	CRIO Generation = "cri-o"
	// CRIOCrun is CRI-O 1.36 with crun on cgroups of version 2, the pair that CRI-O has by default.
	CRIOCrun Generation = "cri-o-crun"
)

// IsCRIO reports whether the runtime is CRI-O.
func (g Generation) IsCRIO() bool { return g == CRIO || g == CRIOCrun }

// Generations returns all generations.
func Generations() []Generation { return append(Containerds(), CRIO, CRIOCrun) }

// Containerds returns the generations of containerd.
func Containerds() []Generation { return []Generation{V1, V2, V24} }

// WithNRI011 returns the generations with NRI 0.11 or later.
func WithNRI011() []Generation { return []Generation{V24, CRIO, CRIOCrun} }

// Shipped returns the generations that a distribution ships.
func Shipped() []Generation { return []Generation{V1, V2} }

// Kit has the paths of the programs of a node.
type Kit struct {
	// Containerd has the directories of containerd, its shim and ctr, by generation.
	Containerd map[Generation]string
	// Versions are the versions of the runtimes, for log output.
	Versions map[Generation]string
	// Runc and Busybox are programs, CNI is a directory of plugins.
	Runc, Busybox, CNI string
	// NewRunc is a runc with features that Debian's lacks, for example mounts with mapped users; empty if
	// there is no C compiler to build it.
	NewRunc string
	// Crun is a script that runs crun.
	Crun string
	CRIO CRIOKit
	// AppArmor makes containerd load its default profile into the kernel, which the tests must not share with the host,
	// and run containers under it.
	AppArmor bool
	// Commands are Jackfield's own commands, and sockclient, by name.
	Commands map[string]string
	// Broken says why a command could not be built.
	Broken map[string]string
}

// kitEnv carries the kit into the jail.
const kitEnv = "JACKFIELD_KIT"

// Prepare downloads what is not in the cache and builds the commands of this checkout. The first run needs
// the network, so it happens before the jail. A command of Jackfield that does not build is not an error of
// Prepare but of Command.
//
// Only the given generations are certain to exist. containerd and runc are built from source for V24 only, and CRI-O for
// CRIO only, which takes minutes the first time.
func Prepare(ctx context.Context, logf func(format string, args ...any), generations ...Generation) (*Kit, error) {
	store, err := parts.Open()
	if err != nil {
		return nil, err
	}
	store.Logf = logf
	got, err := store.Ensure(ctx, parts.ContainerdV1(), parts.ContainerdV2(), parts.Runc(), parts.Busybox(), parts.CNIPlugins())
	if err != nil {
		return nil, err
	}
	k := &Kit{
		Containerd: map[Generation]string{V1: got[0].Path("usr/bin"), V2: got[1].Path("usr/bin")},
		Versions:   map[Generation]string{V1: got[0].FullVersion, V2: got[1].FullVersion},
		Runc:       got[2].Path("usr/sbin/runc"),
		CNI:        got[4].Path("usr/lib/cni"),
		Commands:   map[string]string{},
		Broken:     map[string]string{},
	}
	for _, name := range []string{"bin/busybox", "usr/bin/busybox"} {
		if _, err := os.Stat(got[3].Path(name)); err == nil {
			k.Busybox = got[3].Path(name)
		}
	}
	if k.Busybox == "" {
		return nil, fmt.Errorf("find busybox in %q: %w", got[3].Dir, errdefs.ErrNotFound)
	}
	if slices.Contains(generations, CRIO) {
		if err := k.fetchForCRIO(ctx, store); err != nil {
			return nil, err
		}
	}
	return k, k.build(ctx, logf, generations)
}

// fetchForCRIO fetches conmon and crun. crun needs a newer C library than Debian 12 has, so a script runs it with the
// loader of that library.
func (k *Kit) fetchForCRIO(ctx context.Context, store *parts.Store) error {
	conmon, err := store.Get(ctx, parts.Conmon())
	if err != nil {
		return err
	}
	crun, err := store.Ensure(ctx, parts.NewCrun()...)
	if err != nil {
		return err
	}
	var libraries []string
	for _, u := range crun {
		found, err := filepath.Glob(u.Path("usr/lib/*-linux-gnu"))
		if err != nil {
			return err
		}
		libraries = append(libraries, found...)
	}
	loaders, err := filepath.Glob(crun[1].Path("usr/lib/*-linux-gnu/ld-linux-*"))
	if err != nil || len(loaders) != 1 {
		return fmt.Errorf("find the loader in %q: found %q: %w", crun[1].Dir, loaders, errors.Join(err, errdefs.ErrNotFound))
	}
	k.CRIO.Conmon = conmon.Path("usr/bin/conmon")
	k.Crun, err = writeScript("crun", fmt.Sprintf("exec %s --library-path %s --argv0 crun %s \"$@\"\n",
		loaders[0], strings.Join(libraries, ":"), crun[0].Path("usr/bin/crun")))
	return err
}

// writeScript writes a shell script into the cache. Tests of several packages run at the same time, so the script is
// renamed into place.
func writeScript(name, text string) (string, error) {
	cache, err := parts.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write script %q: %w", name, err)
	}
	tmp, err := os.CreateTemp(dir, ".script-")
	if err != nil {
		return "", fmt.Errorf("write script %q: %w", name, err)
	}
	defer tmp.Close()
	file := filepath.Join(dir, name)
	_, err = tmp.WriteString("#!/bin/sh\n" + text)
	if err := errors.Join(err, tmp.Chmod(0o755), tmp.Close(), os.Rename(tmp.Name(), file)); err != nil {
		return "", fmt.Errorf("write script %q: %w", name, err)
	}
	return file, nil
}

// build builds static binaries of all commands of the checkout, and of the given generations that no distribution has.
func (k *Kit) build(ctx context.Context, logf func(format string, args ...any), generations []Generation) error {
	cache, err := parts.CacheDir()
	if err != nil {
		return err
	}
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return err
	}
	bin := filepath.Join(cache, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("build commands: %w", err)
	}
	if err := goBuild(ctx, filepath.Join(root, "test"), bin, "./vswitch/cmd/sockclient", "./e2e/node/cmd/pinns"); err != nil {
		return err
	}
	k.Commands["sockclient"] = filepath.Join(bin, "sockclient")
	k.CRIO.Pinns = filepath.Join(bin, "pinns")
	if slices.Contains(generations, CRIO) {
		if err := k.buildCRIO(ctx, filepath.Join(root, "test", "crio"), cache, logf); err != nil {
			return err
		}
	}
	if slices.Contains(generations, V24) {
		if err := k.buildRunc(ctx, filepath.Join(root, "test", "runc"), bin); err != nil {
			return err
		}
		if err := k.buildContainerd(ctx, filepath.Join(root, "test", "containerd"), cache, logf); err != nil {
			return err
		}
	}

	dirs, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil {
		return fmt.Errorf("build commands: %w", err)
	}
	var pkgs []string
	for _, d := range dirs {
		name := filepath.Base(filepath.Dir(d))
		pkgs = append(pkgs, "./cmd/"+name)
		k.Commands[name] = filepath.Join(bin, name)
	}
	if len(pkgs) == 0 || goBuild(ctx, root, bin, pkgs...) == nil {
		return nil
	}
	for _, pkg := range pkgs { // finds the broken package
		if err := goBuild(ctx, root, bin, pkg); err != nil {
			name := filepath.Base(pkg)
			k.Broken[name] = err.Error()
			delete(k.Commands, name)
		}
	}
	return ctx.Err()
}

// buildRunc builds runc from the module proxy if there is a C compiler, which runc's code for namespaces
// needs.
func (k *Kit) buildRunc(ctx context.Context, dir, bin string) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		return nil
	}
	k.NewRunc = filepath.Join(bin, "runc")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "netgo,osusergo", "-ldflags", "-s -w -extldflags -static",
		"-o", k.NewRunc, "github.com/opencontainers/runc")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off", buildBeside(bin))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build runc: %w\n%s", err, out)
	}
	return nil
}

// buildBeside makes the go command link on the file system of the target directory, so that it renames
// programs into place. Tests of several packages run at the same time, and may run a program while another
// package builds it again. A copied program would be missing for a moment, and then incomplete.
func buildBeside(dir string) string { return "GOTMPDIR=" + filepath.Dir(dir) }

func goBuild(ctx context.Context, dir, bin string, pkgs ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-o", bin + "/"}, pkgs...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", buildBeside(bin))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build %v: %w\n%s", pkgs, err, out)
	}
	return nil
}

// has reports whether Prepare was called for a generation.
func (k *Kit) has(g Generation) bool {
	if g.IsCRIO() {
		return k.CRIO.Bin != ""
	}
	return k.Containerd[g] != ""
}

// Env returns the variable that carries the kit into the jail.
func (k *Kit) Env() ([]string, error) {
	data, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	return []string{kitEnv + "=" + string(data)}, nil
}

// KitFromEnv returns the kit that was prepared before the jail.
func KitFromEnv() (*Kit, error) {
	k := new(Kit)
	if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), k); err != nil {
		return nil, fmt.Errorf("read %s: nothing was prepared before the jail: %w", kitEnv, errors.Join(err, errdefs.ErrFailedPrecondition))
	}
	return k, nil
}

// Command returns the path of one of the checkout's own commands, such as
// "jackfield-nri".
func (k *Kit) Command(name string) (string, error) {
	if why, ok := k.Broken[name]; ok {
		return "", fmt.Errorf("find command %q: %s: %w", name, why, errdefs.ErrFailedPrecondition)
	}
	path, ok := k.Commands[name]
	if !ok {
		return "", fmt.Errorf("find command %q: there is no cmd/%s: %w", name, name, errdefs.ErrNotFound)
	}
	return path, nil
}
