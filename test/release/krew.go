// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackfield/jackfield/deploy/artifact"
)

const (
	kubectlPlugin = "kubectl-jackfield"
	krewManifest  = "jackfield.yaml" // krew wants the plugin's name
)

// makeKubectlPlugin makes an archive of the kubectl plugin for each platform that users have, and krew's manifest.
func (r *release) makeKubectlPlugin(ctx context.Context) error {
	var manifest bytes.Buffer
	fmt.Fprintf(&manifest, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: jackfield
spec:
  version: v%s
  homepage: %s
  shortDescription: Explain which devices and sockets a pod gets
  description: |
    Runs the command of Jackfield in the pod of Jackfield's DaemonSet that is on a pod's node.
    It explains what the pod's containers get and why, shows what was injected, lists their
    sockets with peers, age and rebinds, and finds what is wrong on the node.
  caveats: |
    Needs Jackfield in the cluster, and the right to exec into its pods.
  platforms:
`, r.Version, home)
	for _, goos := range []string{"darwin", "linux", "windows"} {
		for _, arch := range r.archs {
			name, err := r.makePluginArchive(ctx, goos, arch)
			if err != nil {
				return err
			}
			program := kubectlPlugin
			if goos == "windows" {
				program += ".exe"
			}
			fmt.Fprintf(&manifest, "    - selector: {matchLabels: {os: %s, arch: %s}}\n      uri: %s/releases/download/v%s/%s\n      sha256: %s\n      bin: %s\n",
				goos, arch, home, r.Version, name, strings.TrimPrefix(artifact.Digest(r.files[name]), "sha256:"), program)
		}
	}
	r.files[krewManifest] = manifest.Bytes()
	return nil
}

// makePluginArchive makes the archive of one platform, with the licences of what the program contains.
func (r *release) makePluginArchive(ctx context.Context, goos, arch string) (string, error) {
	dir := filepath.Join(r.work, "kubectl", goos, arch)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := r.Build.Build(ctx, goos, arch, "./cmd/"+kubectlPlugin, dir); err != nil {
		return "", err
	}
	files, err := artifact.ReadPrograms(dir, ".")
	if err != nil {
		return "", err
	}
	for i := range files {
		files[i].Name = filepath.Base(files[i].Name)
	}
	licenses, err := r.Licenses(ctx, dir)
	if err != nil {
		return "", err
	}
	packed, err := artifact.Compress(append(files, licenses...), r.Time)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s-%s-%s-%s.tar.gz", kubectlPlugin, r.Version, goos, arch)
	r.files[name] = packed.Compressed
	return name, nil
}
