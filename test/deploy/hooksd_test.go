// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"go.podman.io/common/pkg/hooks"
	current "go.podman.io/common/pkg/hooks/1.0.0"

	"github.com/jackfield/jackfield/internal/source/annotation"
)

// hookFiles writes the hooks.d files of a runtime with the path of an existing program, and returns
// their directory.
func hookFiles(t *testing.T, runtime string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join(top, "hooks.d", runtime, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files for %s: %v", runtime, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), "/usr/local/bin/jackfield-hook", "/bin/sh")
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The parser of Podman and CRI-O accepts the files with the stages of each runtime.
func TestRuntimesAcceptHookFiles(t *testing.T) {
	for runtime, extensions := range map[string][]string{"crio": nil, "podman": {"precreate", "poststop"}} {
		got := map[string]*current.Hook{}
		if err := hooks.ReadDir(hookFiles(t, runtime), extensions, got); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", runtime, got, err)
		}
	}
	if err := hooks.ReadDir(hookFiles(t, "podman"), nil, map[string]*current.Hook{}); err == nil || !strings.Contains(err.Error(), "precreate") {
		t.Errorf("Podman's file in a directory that CRI-O or Buildah reads: %v; want it rejected for its stage", err)
	}
}

// The hook runs exactly for containers with annotations of Jackfield or CDI, misspelt ones included.
func TestHookRunsOnlyWithAnnotations(t *testing.T) {
	for runtime, stages := range map[string]string{"crio": "createRuntime poststop", "podman": "precreate"} {
		manager, err := hooks.New(t.Context(), []string{hookFiles(t, runtime)}, []string{"precreate", "poststop"})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"devices.jackfield.dev", "devices.jackfield.dev/container.app", "networks.jackfield.dev/pod", "Devices.Jackfield.Dev", "jackfield.dev",
			"jackfield.dev/x", "x.jackfield.dev.", "notjackfield.dev", "example.com/devices.jackfield.dev", "jackfield.device", "xjackfield.dev/a", "a.b.jackfield.dev/c",
			"cdi.k8s.io/vendor", "cdi.k8s.iox/a", "xcdi.k8s.io/a", "k8s.v1.cni.cncf.io/networks", "io.kubernetes.cri-o.Name", ""} {
			annotations := map[string]string{key: "x"}
			want := annotation.HasAny(annotations)
			if runtime == "crio" && strings.HasPrefix(key, annotation.CDIPrefix) {
				want = false // CRI-O injects CDI devices itself
			}
			spec := &rspec.Spec{Process: &rspec.Process{Args: []string{"/bin/sh"}}}
			extra, err := manager.Hooks(spec, annotations, true)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for stage, list := range map[string][]rspec.Hook{"precreate": extra["precreate"], "poststop": extra["poststop"]} {
				for range list {
					got = append(got, stage)
				}
			}
			if spec.Hooks != nil {
				for range spec.Hooks.CreateRuntime {
					got = append([]string{"createRuntime"}, got...)
				}
			}
			if ran := len(got) > 0; ran != want || ran && strings.Join(got, " ") != stages {
				t.Errorf("%s: %q runs the hook at %q, want %v", runtime, key, got, want)
			}
		}
	}
}

// The drop-ins list the runtime's default directories and that of the hook.
func TestDropInsListHookDirectories(t *testing.T) {
	for file, want := range map[string]string{
		"deploy/podman/50-jackfield.conf":     "[engine]\nhooks_dir = [\"/usr/share/containers/oci/hooks.d\", \"/etc/containers/oci/hooks.d\", \"/usr/local/share/jackfield/podman-hooks.d\"]\n",
		"deploy/crio/50-jackfield-hooks.conf": "[crio.runtime]\nhooks_dir = [\"/usr/share/containers/oci/hooks.d\", \"/usr/local/share/jackfield/crio-hooks.d\"]\n",
	} {
		if text := string(read(t, file)); !strings.HasSuffix(text, want) {
			t.Errorf("%s does not end with\n%s", file, want)
		}
	}
	if want := fmt.Sprintf("[%q, %q]", hooks.DefaultDir, hooks.OverrideDir); !strings.Contains(string(read(t, "deploy/podman/50-jackfield.conf")), want[1:len(want)-1]) {
		t.Errorf("Podman's default directories are %s", want)
	}
}
