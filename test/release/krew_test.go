// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/deploy/artifact"
)

// krew's manifest names an archive for each platform, with its checksum, and the program in it is of that platform.
func TestKrewManifest(t *testing.T) {
	r := &release{Build: artifact.Build{Source: "../..", Version: version, Commit: "0123456789abcdef"}, archs: []string{"amd64", "arm64"}, work: t.TempDir(), files: map[string][]byte{}}
	if err := r.makeKubectlPlugin(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range r.files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
