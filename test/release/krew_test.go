// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/deploy/artifact"
)

// makePluginFiles makes the archives of the kubectl plugin and krew's manifest once, in a directory.
var makePluginFiles = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "plugin")
	work := filepath.Join(scratch, "plugin-work")
	r := &release{Build: artifact.Build{Source: "../..", Version: version, Commit: "0123456789abcdef"}, archs: []string{"amd64", "arm64"}, work: work, files: map[string][]byte{}}
	ctx, stop := testContext()
	defer stop()
	if err := r.makeKubectlPlugin(ctx); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for name, data := range r.files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
})

func pluginFiles(t *testing.T) string {
	t.Helper()
	dir, err := makePluginFiles()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// buildKrew builds krew and its validator of manifests once, in a directory.
var buildKrew = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "krew")
	ctx, stop := testContext()
	defer stop()
	cmd := exec.CommandContext(ctx, "go", "build", "-modfile=tools/go.mod", "-o", dir+"/",
		"sigs.k8s.io/krew/cmd/krew", "sigs.k8s.io/krew/cmd/validate-krew-manifest")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build krew: %w\n%s", err, out)
	}
	return dir, nil
})

func krewPrograms(t *testing.T) string {
	t.Helper()
	dir, err := buildKrew()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// krew's manifest names an archive for each platform, with its checksum, and the program in it is of that platform.
func TestKrewManifest(t *testing.T) {
	dir := pluginFiles(t)
	var manifest struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, dir, krewManifest)), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Metadata.Name != "jackfield" || manifest.Spec.Version != "v"+version || len(manifest.Spec.Platforms) != 6 {
		t.Errorf("found %+v", manifest)
	}
	for _, p := range manifest.Spec.Platforms {
		name, platform := path.Base(p.URI), p.Selector.MatchLabels
		if p.URI != home+"/releases/download/v"+version+"/"+name || artifact.Digest([]byte(read(t, dir, name))) != "sha256:"+p.SHA256 {
			t.Errorf("%s has the checksum %s", p.URI, p.SHA256)
		}
		unpacked := t.TempDir()
		command(t, unpacked, plainEnv, "tar", "-xzf", filepath.Join(dir, name))
		program := filepath.Join(unpacked, p.Bin)
		var err error
		switch platform.OS {
		case "linux":
			var f *elf.File
			if f, err = elf.Open(program); err == nil {
				f.Close()
			}
		case "darwin":
			var f *macho.File
			if f, err = macho.Open(program); err == nil {
				f.Close()
			}
		case "windows":
			var f *pe.File
			if f, err = pe.Open(program); err == nil {
				f.Close()
			}
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text := read(t, unpacked, "THIRD_PARTY_LICENSES"); !strings.Contains(text, "github.com/spf13/cobra v") {
			t.Errorf("%s lacks the licences of what is linked into it", name)
		}
		if platform.OS == runtime.GOOS && platform.Arch == runtime.GOARCH {
			if out := command(t, unpacked, plainEnv, program, "--version"); !strings.HasPrefix(out, kubectlPlugin+" "+version+" (") {
				t.Errorf("%s prints %q", name, out)
			}
		}
	}
}

// krew installs the plugin from the release's manifest and archive, and removes it.
func TestKrewInstallsAndUninstallsPlugin(t *testing.T) {
	dir, krew, root := pluginFiles(t), filepath.Join(krewPrograms(t), "krew"), t.TempDir()
	env := append([]string{"KREW_ROOT=" + root, "HOME=" + t.TempDir(), "KREW_NO_UPGRADE_CHECK=1"}, plainEnv...)
	// krew uninstalls only where it has an index. An empty one needs no network.
	command(t, root, env, "git", "init", "--quiet", filepath.Join(root, "index", "default"))
	install := func(goarch string) []string {
		archive := fmt.Sprintf("%s-%s-%s-%s.tar.gz", kubectlPlugin, version, runtime.GOOS, goarch)
		return []string{"install", "--manifest=" + krewManifest, "--archive=" + archive}
	}
	plugin := filepath.Join(root, "bin", kubectlPlugin)
	checkRemoved := func(after string) {
		t.Helper()
		for _, path := range []string{plugin, filepath.Join(root, "receipts", krewManifest)} {
			if _, err := os.Lstat(path); !os.IsNotExist(err) {
				t.Errorf("after %s, %s is still there: %v", after, path, err)
			}
		}
	}

	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	cmd := exec.CommandContext(t.Context(), krew, install(other)...)
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "checksum does not match") {
		t.Errorf("krew installs the archive of another platform: %v\n%s", err, out)
	}
	checkRemoved("a wrong archive")

	if out := command(t, dir, env, krew, install(runtime.GOARCH)...); !strings.Contains(out, "kubectl jackfield") || !strings.Contains(out, home) {
		t.Errorf("krew install does not print the command and the home page:\n%s", out)
	}
	if receipt := read(t, root, "receipts", krewManifest); !strings.Contains(receipt, "version: v"+version+"\n") {
		t.Errorf("krew's receipt is\n%s", receipt)
	}
	if out := command(t, dir, env, plugin, "--version"); !strings.HasPrefix(out, kubectlPlugin+" "+version+" (") {
		t.Errorf("the installed plugin prints %q", out)
	}
	if out := command(t, dir, env, plugin, "--help"); !strings.Contains(out, "kubectl jackfield") {
		t.Errorf("the installed plugin's help is\n%s", out)
	}

	command(t, dir, env, krew, "uninstall", "jackfield")
	checkRemoved("uninstall")
}

// krew's validator, which the plugin index runs, accepts the manifest and installs the archive of each platform.
func TestKrewValidatesManifest(t *testing.T) {
	dir, programs, work := pluginFiles(t), krewPrograms(t), t.TempDir()
	validator := filepath.Join(programs, "validate-krew-manifest")
	command(t, dir, plainEnv, validator, "-skip-install", "-manifest", filepath.Join(dir, krewManifest))

	// The validator downloads what the manifest names. Only the server's address differs from the release's manifest.
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	manifest := strings.ReplaceAll(read(t, dir, krewManifest), home+"/releases/download/v"+version, server.URL)
	if err := os.WriteFile(filepath.Join(work, krewManifest), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	// The validator runs "kubectl krew", for which kubectl runs krew.
	kubectl := fmt.Sprintf("#!/bin/sh\nshift\nexec '%s' \"$@\"\n", filepath.Join(programs, "krew"))
	if err := os.WriteFile(filepath.Join(work, "kubectl"), []byte(kubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + work + ":/usr/bin:/bin", "TMPDIR=" + work, "LC_ALL=C"}
	if out := command(t, work, env, validator, "-manifest", krewManifest); !strings.Contains(out, "all 6 spec.platforms installed fine") {
		t.Errorf("the validator prints\n%s", out)
	}
}
