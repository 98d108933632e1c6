// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackfield/jackfield/deploy/artifact"
)

// contents are the files of the checkout that an archive has: what deploy/install/install.sh installs, and what
// operators apply to a cluster without the chart. A name without an extension is a directory.
var contents = []string{
	"CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "nri/50-jackfield.conf", "deploy/config.yaml",
	"deploy/admission", "deploy/admission-require", "deploy/admission-warn", "deploy/crio", "deploy/install", "deploy/kit", "deploy/monitoring", "deploy/podman", "deploy/rbac", "deploy/systemd",
	"docs/man", "hooks.d",
}

// makeArchives makes the archive, the SBOM and the packages of each architecture.
func (r *release) makeArchives(ctx context.Context) error {
	for _, arch := range r.archs {
		licenses, err := r.Licenses(ctx, r.programs(arch))
		if err != nil {
			return err
		}
		files, err := r.archiveFiles(ctx, arch, licenses)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("jackfield-%s-linux-%s", r.Version, arch)
		if err := r.makeArchive(name, files); err != nil {
			return err
		}
		if r.files[name+".spdx.json"], err = r.sbom(name, arch); err != nil {
			return err
		}
		if err := r.makePackages(ctx, arch, files); err != nil {
			return err
		}
	}
	return nil
}

// archiveFiles are the programs, the licences, and the files of the checkout. What git does not track is left out.
func (r *release) archiveFiles(ctx context.Context, arch string, licenses []artifact.File) ([]artifact.File, error) {
	files, err := artifact.ReadPrograms(r.programs(arch), "bin")
	if err != nil {
		return nil, err
	}
	for _, l := range licenses {
		if l.Name != "LICENSE" { // it is in contents
			files = append(files, l)
		}
	}
	list, err := r.git(ctx, append([]string{"ls-files", "--stage", "-z", "--"}, contents...)...)
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		info, name, ok := strings.Cut(entry, "\t")
		mode := int64(0o644)
		if strings.HasPrefix(info, "100755 ") {
			mode = 0o755
		} else if !strings.HasPrefix(info, "100644 ") || !ok {
			return nil, fmt.Errorf("found %q in the checkout, want a regular file", entry)
		}
		data, err := os.ReadFile(filepath.Join(r.Source, name))
		if err != nil {
			return nil, err
		}
		files = append(files, artifact.File{Name: name, Mode: mode, Data: data})
	}
	return files, nil
}

// makeArchive compresses the files below a directory of the archive's name.
func (r *release) makeArchive(name string, files []artifact.File) error {
	dirs := map[string]bool{}
	var entries []artifact.File
	for _, f := range files {
		f.Name = name + "/" + f.Name
		entries = append(entries, f)
		for dir := filepath.Dir(f.Name); dir != "." && !dirs[dir]; dir = filepath.Dir(dir) {
			dirs[dir] = true
			entries = append(entries, artifact.File{Name: dir + "/", Mode: 0o755})
		}
	}
	packed, err := artifact.Compress(entries, r.Time)
	if err != nil {
		return err
	}
	r.files[name+".tar.gz"] = packed.Compressed
	return nil
}
