// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/nri"
	nritest "github.com/jackfield/jackfield/test/nri"
)

// requiredAnnotation makes a pod's containers need a plugin, where the runtime has
// NRI's default validator switched on.
const requiredAnnotation = "required-plugins.noderesource.dev"

// Without the plugin, a container that requests a device is created without it. With the validator of
// NRI 0.10 it is not created.
func TestContainerWithoutRequiredPlugin(t *testing.T) {
	asks := map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}
	requires := map[string]string{"devices.jackfield.dev": "vendor.com/net=a", requiredAnnotation: "[jackfield]"}
	for _, tc := range []struct {
		name        string
		validator   *validator.DefaultValidatorConfig
		annotations map[string]string
		refused     bool
	}{
		{"no validator", nil, requires, false},
		{"validator that is off", &validator.DefaultValidatorConfig{RequiredPlugins: []string{"jackfield"}}, requires, false},
		{"validator, pod requires it", &validator.DefaultValidatorConfig{Enable: true}, requires, true},
		{"validator, pod does not", &validator.DefaultValidatorConfig{Enable: true}, asks, false},
		{"validator requires it of all", &validator.DefaultValidatorConfig{Enable: true, RequiredPlugins: []string{"jackfield"}}, nil, true},
		{"validator requires it of all, pod tolerates", &validator.DefaultValidatorConfig{Enable: true, RequiredPlugins: []string{"jackfield"},
			TolerateMissingAnnotation: "tolerate.example.com"}, map[string]string{"tolerate.example.com": "true"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := nritest.New(t, nritest.Options{RuntimeVersion: "2.3.0", Validator: tc.validator})
			pod := nritest.NewPod("dpdk-a", "fwd-0", tc.annotations)
			check(t, r.RunPodSandbox(t.Context(), pod))
			created, err := r.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
			if tc.refused {
				if err == nil || !strings.Contains(err.Error(), "jackfield") {
					t.Errorf("got %v, want a refusal for the missing plugin", err)
				}
				return
			}
			check(t, err)
			if created.Adjust != nil && len(created.Adjust.GetEnv()) > 0 {
				t.Errorf("somebody injected %v", created.Adjust)
			}
		})
	}
}

// A container that requires the plugin is created while the plugin is connected.
func TestContainerWithRequiredPluginIsCreated(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{RuntimeVersion: "2.3.0", Validator: &validator.DefaultValidatorConfig{Enable: true, RequiredPlugins: []string{"jackfield"}}})
	check(t, os.WriteFile(n.path("/etc/cdi/v.json"), []byte(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`), 0o644))
	pod := nritest.NewPod("dpdk-a", "fwd-0", map[string]string{"devices.jackfield.dev": "vendor.com/net=a", requiredAnnotation: "[jackfield]"})
	check(t, n.runtime.RunPodSandbox(t.Context(), pod))
	_, err := n.runtime.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
	check(t, err)
}

// Invalid IDs from the runtime give errors or nothing, and the plugin goes on. Outside of the state
// directory nothing is created, changed or removed.
func TestInvalidIDsOfRuntimeAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"etc/precious/file", "etc/x.container", "run/etc/file", "run/precious/x.container", "run/precious/file", "run/x.container", "precious/file",
		"run/vsw/precious/file", "var/lib/precious/file"} {
		check(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	check(t, os.Symlink("../run", filepath.Join(dir, "var/run")))
	before := filesOutside(t, dir, "run/jackfield")
	host, err := hostfs.New(dir)
	check(t, err)
	cfg, err := config.Parse([]byte(policyYAML), "/etc/jackfield/config.yaml")
	check(t, err)
	p, err := nri.New(nri.Options{Host: host, Config: cfg, ConfigGiven: true}, logrus.New())
	check(t, err)
	defer func() { check(t, p.Close()) }()
	ctx := context.Background()
	asks := map[string]string{"devices.jackfield.dev": "vendor.com/net=a", "networks.jackfield.dev": "net1"}
	ids := []string{"", ".", "..", "../../etc", "/etc", "a/b", strings.Repeat("x", 5000), "a\x00b", "a\nb",
		"../../precious", "../../../precious", "../../../etc", "../../../etc/precious", "../../vsw", "../../x", "../../../etc/x", "/run/precious"}
	for _, id := range ids {
		pods := []*api.PodSandbox{nil, {Id: id}, {Id: id, Namespace: id, Name: id, Uid: id, Annotations: asks, Labels: map[string]string{id: id}, RuntimeHandler: id}}
		for _, pod := range pods {
			containers := []*api.Container{nil, {Id: id, PodSandboxId: "another", Name: id, Env: []string{id, "=", "A"},
				Mounts: []*api.Mount{nil, {Destination: id, Source: id}}, Hooks: &api.Hooks{Prestart: []*api.Hook{nil}},
				Linux: &api.LinuxContainer{Devices: []*api.LinuxDevice{nil, {Path: id, Type: id, Major: -1}}}}}
			check(t, p.RunPodSandbox(ctx, pod))
			for _, c := range containers {
				adjust, _, err := p.CreateContainer(ctx, pod, c)
				if err == nil && len(adjust.GetMounts())+len(adjust.GetLinux().GetDevices()) > 0 {
					t.Errorf("pod %v, container %v: injected %v", pod, c, adjust)
				}
				_, err = p.StopContainer(ctx, pod, c)
				check(t, err)
				check(t, p.RemoveContainer(ctx, pod, c))
				_ = p.ValidateContainerAdjustment(ctx, &api.ValidateContainerAdjustmentRequest{Pod: pod, Container: c,
					Adjust: &api.ContainerAdjustment{Mounts: []*api.Mount{nil, {Source: id}}, Linux: &api.LinuxContainerAdjustment{Devices: []*api.LinuxDevice{nil, {Path: id}}}}})
			}
			check(t, p.RemovePodSandbox(ctx, pod))
			if _, err := p.Synchronize(ctx, []*api.PodSandbox{pod}, containers); err != nil {
				t.Error(err)
			}
		}
	}
	if d := cmp.Diff(before, filesOutside(t, dir, "run/jackfield")); d != "" {
		t.Errorf("outside of the state directory, -before +after\n%s", d)
	}
}

// filesOutside returns the files and directories below dir without those of the state directory,
// each with its mode and a file's content.
func filesOutside(t *testing.T, dir, state string) map[string]string {
	t.Helper()
	files := map[string]string{}
	check(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == filepath.Join(dir, state) {
			return filepath.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var data []byte
		if info.Mode().IsRegular() {
			data, err = os.ReadFile(name)
		}
		files[strings.TrimPrefix(name, dir)] = fmt.Sprintf("%v %s", info.Mode(), data)
		return err
	}))
	return files
}
