// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/api"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/parts"
	"github.com/jackfield/jackfield/test/vswitch"
)

// embedded is the demonstration with the runtime's side of NRI in this process. It runs no container
// and shows the OCI specification instead.
func embedded(w io.Writer, why error) error {
	return withContext(func(ctx context.Context) error { return runEmbedded(ctx, w, why) })
}

func runEmbedded(ctx context.Context, w io.Writer, why error) (err error) {
	fmt.Fprintf(w, "No real containerd here: %v.\nThe embedded NRI runtime replaces it: same plugin, same protocol, but no container runs.\n", why)
	// Sockets need a short path.
	dir, err := os.MkdirTemp("", "jf")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	host := filepath.Join(dir, "host")
	if err := os.MkdirAll(filepath.Join(host, "run/vsw"), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(host, "var"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink("../run", filepath.Join(host, "var/run")); err != nil {
		return err
	}
	bin, err := buildPlugin(ctx, dir)
	if err != nil {
		return err
	}
	runtime, err := nritest.Start(nritest.Options{SocketPath: filepath.Join(dir, "nri.sock"), RequestTimeout: 20 * time.Second, RegistrationTimeout: 20 * time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runtime.Close()) }()
	stop, err := startPlugin(ctx, bin, host, dir, runtime)
	if err != nil {
		return err
	}
	defer stop()

	at := func(path string) string { return filepath.Join(host, path) }
	if err := write(at(cdiFile), fmt.Sprintf(cdiJSON, `"type": "c", "major": 1, "minor": 5`)); err != nil {
		return err
	}
	for path, kind := range map[string]vswitch.Kind{vhostSocket: vswitch.VhostUser, memifSocket: vswitch.Memif} {
		if err := os.MkdirAll(filepath.Dir(at(path)), 0o755); err != nil {
			return err
		}
		s, err := vswitch.Listen(kind, at(path), greeting(path))
		if err != nil {
			return err
		}
		defer s.Close()
	}
	scene(w)
	return show(ctx, w, runtime, at)
}

// show creates the container and prints what its OCI specification got.
func show(ctx context.Context, w io.Writer, runtime *nritest.Runtime, at func(string) string) error {
	pod := nritest.NewPod(namespace, podName, annotations())
	err := errors.Join(write(at(devinfoFile("vhost-net", pod.Id, "net1")), vhostInfo), write(at(devinfoFile("memif-net", pod.Id, "net2")), memifInfo))
	if err != nil {
		return err
	}
	if err := runtime.RunPodSandbox(ctx, pod); err != nil {
		return err
	}
	ctr := &api.Container{Id: nritest.NewID(), PodSandboxId: pod.Id, Name: "main", Args: []string{"sleep"}, Linux: &api.LinuxContainer{}}
	created, err := runtime.CreateContainer(ctx, pod, ctr)
	if err != nil {
		return err
	}
	spec := created.Spec
	heading(w, "its container's OCI specification, and the sockets")
	for _, d := range spec.Linux.Devices {
		indent(w, fmt.Sprintf("device  %s (%s %d:%d)", d.Path, d.Type, d.Major, d.Minor))
	}
	for _, e := range spec.Process.Env {
		if strings.HasPrefix(e, "ACME") || strings.HasPrefix(e, "JACKFIELD") {
			indent(w, "env     "+e)
		}
	}
	answers := 0
	for _, m := range spec.Mounts {
		if !strings.HasPrefix(m.Destination, "/var/run/") {
			continue
		}
		indent(w, fmt.Sprintf("mount   %s (%s)", m.Destination, strings.Join(m.Options, ",")))
		sockets, _ := filepath.Glob(filepath.Join(m.Source, "*.sock"))
		for _, s := range sockets {
			answer, err := vswitch.Ask(ctx, s)
			if err != nil {
				return err
			}
			indent(w, fmt.Sprintf("          %s answers: %s", filepath.Base(s), answer))
			answers++
		}
	}
	if !slices.ContainsFunc(spec.Process.Env, func(e string) bool { return e == "ACME_NIC=nic0" }) || len(spec.Linux.Devices) == 0 || answers < 2 {
		return errors.New("the specification lacks what was granted")
	}
	view, err := os.ReadFile(filepath.Join(mountSource(spec.Mounts), "devices.json"))
	if err != nil {
		return err
	}
	indent(w, string(view))
	return nil
}

func buildPlugin(ctx context.Context, dir string) (string, error) {
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "jackfield-nri")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", bin, "./cmd/jackfield-nri")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build jackfield-nri: %w\n%s", err, out)
	}
	return bin, nil
}

// startPlugin starts the plugin with the directory as its host.
func startPlugin(ctx context.Context, bin, host, dir string, runtime *nritest.Runtime) (stop func(), err error) {
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(configYAML), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, "--root", host, "--config", config, "--nri-socket", runtime.SocketPath(), "--index", "10")
	var log strings.Builder
	cmd.Stderr = &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := runtime.WaitPlugin(wait, "10-jackfield"); err != nil {
		stop()
		return nil, fmt.Errorf("%w; the plugin logged:\n%s", err, log.String())
	}
	return stop, nil
}

func mountSource(mounts []rspec.Mount) string {
	for _, m := range mounts {
		if m.Destination == "/var/run/jackfield" {
			return m.Source
		}
	}
	return ""
}
