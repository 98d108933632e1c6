// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"

	"github.com/jackfield/jackfield/deploy/artifact"
)

// rpmArchs has RPM's name of each architecture.
var rpmArchs = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

//go:embed scripts
var scripts embed.FS

// makePackages makes the Debian and the RPM package of an architecture. The files are those that the archive's
// own installer installs, so that there is one list.
func (r *release) makePackages(ctx context.Context, arch string, files []artifact.File) error {
	tree, root := filepath.Join(r.work, "tree", arch), filepath.Join(r.work, "root", arch)
	for _, f := range files {
		path := filepath.Join(tree, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, fs.FileMode(f.Mode)); err != nil {
			return err
		}
	}
	install := exec.CommandContext(ctx, filepath.Join(tree, "deploy/install/install.sh"), "install")
	install.Dir = tree
	install.Env = []string{"PATH=" + os.Getenv("PATH"), "DESTDIR=" + root, "PREFIX=/usr", "COMPLETER=" + r.completer}
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("install the archive for packages: %w\n%s", err, out)
	}
	hooks := map[string]string{}
	for _, name := range []string{"postinstall.sh", "preremove.sh", "postremove.sh"} {
		text, err := scripts.ReadFile("scripts/" + name)
		if err != nil {
			return err
		}
		hooks[name] = filepath.Join(r.work, name)
		if err := os.WriteFile(hooks[name], text, 0o755); err != nil {
			return err
		}
	}
	for _, kind := range []struct {
		name, file string
		packager   nfpm.Packager
	}{
		{"deb", fmt.Sprintf("jackfield_%s_%s.deb", r.Version, arch), deb.Default},
		{"rpm", fmt.Sprintf("jackfield-%s.%s.rpm", r.Version, rpmArchs[arch]), rpm.DefaultRPM},
	} {
		list, err := r.packageContents(root)
		if err != nil {
			return err
		}
		info := &nfpm.Info{
			Name: "jackfield", Arch: arch, Platform: "linux", Version: r.Version, Release: "1", Section: "admin", Priority: "optional",
			Maintainer: "Jackfield maintainers <jackfield@users.noreply.github.com>", Homepage: home, License: "Apache-2.0",
			Description: "Devices and fast-path sockets for containers\n" +
				"An NRI plugin, an OCI hook, a CNI plugin and a command that give containers the CDI devices,\n" +
				"PCI and vDPA functions, and vhost-user and memif sockets that a policy grants them.",
			MTime: r.Time, DisableGlobbing: true,
			Overridables: nfpm.Overridables{
				Contents: list, Umask: 0o022,
				RPM:     nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Daemons", Summary: "Devices and fast-path sockets for containers", Compression: "gzip:9"},
				Scripts: nfpm.Scripts{PostInstall: hooks["postinstall.sh"], PreRemove: hooks["preremove.sh"], PostRemove: hooks["postremove.sh"]},
			},
		}
		info = nfpm.WithDefaults(info)
		if err := nfpm.PrepareForPackager(info, kind.name); err != nil {
			return fmt.Errorf("prepare %s: %w", kind.file, err)
		}
		var out bytes.Buffer
		if err := kind.packager.Package(info, &out); err != nil {
			return fmt.Errorf("write %s: %w", kind.file, err)
		}
		r.files[kind.file] = out.Bytes()
	}
	return nil
}

// packageContents are the installed files below a directory. Podman's drop-in is left out: it enables the OCI
// hook for all containers of the host, which is the administrator's decision. A sample is in the documentation.
func (r *release) packageContents(root string) (nfpmfiles.Contents, error) {
	var list nfpmfiles.Contents
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		target := strings.TrimPrefix(path, root)
		if strings.HasPrefix(target, "/etc/containers/") {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		content := &nfpmfiles.Content{Source: path, Destination: target, FileInfo: &nfpmfiles.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.Time}}
		if strings.HasPrefix(target, "/etc/") {
			content.Type = nfpmfiles.TypeConfigNoReplace
		}
		list = append(list, content)
		return nil
	})
	return list, err
}
