// SPDX-License-Identifier: Apache-2.0

package cniconf_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/parts"
)

// kit has the paths of the programs, which are built outside the jail.
type kit struct {
	// Debian and Upstream are directories of CNI plugins, each with jackfield-cni.
	// Debian's support version 1.0.0 at most.
	Debian, Upstream string
	Iptables         string // a directory for PATH
}

const kitEnv = "JACKFIELD_CNICONF"

var (
	upstream = []string{"ipam/host-local", "main/bridge", "meta/tuning", "meta/portmap"}
	debian   = []string{"host-local", "bridge", "tuning", "portmap"}
)

func TestMain(m *testing.M) {
	flag.Parse()
	if jail.Outside() && impossible() != nil {
		os.Exit(m.Run())
	}
	os.Exit(jail.Run(prepare, m.Run))
}

func impossible() error {
	if testing.Short() {
		return errors.New("left out of short runs")
	}
	if ok, why := parts.Debian(); !ok {
		return errors.New(why)
	}
	return jail.Possible()
}

// require skips a test that cannot run here, with the reason. In CI the test fails instead.
func require(t *testing.T) kit {
	t.Helper()
	if !jail.Inside() {
		why := impossible()
		if os.Getenv("CI") == "true" {
			t.Fatalf("cannot run, and CI promises that it can: %v", why)
		}
		t.Skipf("skipped: %v", why)
	}
	var k kit
	if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), &k); err != nil {
		t.Fatal(err)
	}
	return k
}

func prepare() ([]string, error) {
	ctx := context.Background()
	store, err := parts.Open()
	if err != nil {
		return nil, err
	}
	store.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "cniconf: "+format+"\n", args...) }
	got, err := store.Ensure(ctx, append([]parts.Package{parts.CNIPlugins()}, parts.Iptables()...)...)
	if err != nil {
		return nil, err
	}
	cache, err := parts.CacheDir()
	if err != nil {
		return nil, err
	}
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "cniconf")
	k := kit{filepath.Join(dir, "debian"), filepath.Join(dir, "upstream"), filepath.Join(dir, "iptables")}
	for _, d := range []string{k.Debian, k.Upstream, k.Iptables} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	// The module of the tools requires the plugins, so that the module of the tests stays small.
	packages := []string{"github.com/containernetworking/cni/plugins/test/noop"}
	for _, p := range upstream {
		packages = append(packages, "github.com/containernetworking/plugins/plugins/"+p)
	}
	err = errors.Join(
		build(ctx, filepath.Join(root, "test"), append([]string{"-modfile=tools/go.mod", "-o", k.Upstream + "/"}, packages...)...),
		build(ctx, root, "-o", k.Upstream+"/", "./cmd/jackfield-cni"),
		link(filepath.Join(k.Upstream, "jackfield-cni"), k.Debian))
	for _, name := range debian {
		err = errors.Join(err, link(got[0].Path("usr/lib/cni/"+name), k.Debian))
	}
	if err == nil {
		err = wrapIptables(got[1:], k.Iptables)
	}
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(k)
	return []string{kitEnv + "=" + string(data)}, err
}

func build(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v: %w\n%s", args, err, out)
	}
	return nil
}

func link(file, dir string) error {
	name := filepath.Join(dir, filepath.Base(file))
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(file, name)
}

// wrapIptables writes scripts that run iptables with the libraries of the unpacked packages.
func wrapIptables(got []parts.Unpacked, dir string) error {
	var libs []string
	modules := ""
	for _, u := range got {
		found, err := filepath.Glob(u.Path("usr/lib/*-linux-gnu"))
		if err != nil {
			return err
		}
		for _, lib := range found {
			libs = append(libs, lib)
			if _, err := os.Stat(filepath.Join(lib, "xtables")); err == nil {
				modules = filepath.Join(lib, "xtables")
			}
		}
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore"} {
		script := fmt.Sprintf("#!/bin/sh\nexport LD_LIBRARY_PATH=%s XTABLES_LIBDIR=%s\nexec %s %s \"$@\"\n",
			strings.Join(libs, ":"), modules, got[0].Path("usr/sbin/xtables-nft-multi"), name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}
