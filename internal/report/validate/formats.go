// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/source/devicemetadata"
	"github.com/jackfield/jackfield/internal/source/hooksd"
	"github.com/jackfield/jackfield/pkg/cdi"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// maxConflicts bounds the devices that one diagnostic names.
const maxConflicts = 3

// checkSpec checks a CDI file as a node that reads it does.
func (v *Validator) checkSpec(t text) (content string, found diag.List) {
	spec, err := cdi.ParseSpec(t.data)
	if spec != nil {
		content = diag.Count(len(spec.Devices), "device")
	}
	if t.hostPath == "" {
		return content, diag.All(t.name, err).WithFile(t.name)
	}
	if !slices.Contains(v.specExts, t.ext) {
		found = diag.List{{File: t.name, Severity: diag.SeverityWarning,
			Rule: "is not read under this name: cdi.extensions of the configuration has " + strings.Join(v.specExts, ", ")}}
	}
	all, err := cdi.ValidateFile(t.hostPath, cdi.ValidateOptions{Root: v.host.Dir(), CheckHost: v.checkHost,
		TrustAnyone: !v.checkHost})
	return content, append(found, v.rateFindings(t, diag.All("", all), err)...)
}

// checkHook checks a hooks.d file as a node that reads it does.
func (v *Validator) checkHook(t text) (content string, found diag.List) {
	var err error
	if t.hostPath == "" {
		_, found = hooksd.Parse(t.data, t.name)
	} else {
		found, err = hooksd.ValidateFile(v.host, t.hostPath, hooksd.Options{TrustAnyone: !v.checkHost}, v.checkHost)
	}
	return "1 hook", v.rateFindings(t, found, err)
}

// rateFindings returns the findings of a CDI or hooks.d file. Those about this host, and not about the
// content, are warnings where this host does not read the file. A stage that only Podman knows is a
// warning: the file may be for Podman.
func (v *Validator) rateFindings(t text, all diag.List, err error) diag.List {
	if err != nil {
		return diag.List{diag.Unreadable(t.name, err)}
	}
	for _, d := range all {
		if errors.Is(d, hooksd.ErrPodmanStage) || !errdefs.IsInvalidArgument(d) && !v.isReadDir(path.Dir(t.hostPath)) {
			d.Severity = diag.SeverityWarning
		}
	}
	return all.WithFile(t.name)
}

// findConflicts returns the files of a directory that declare the same devices: each is valid alone,
// and none of the devices can be used.
func (v *Validator) findConflicts(dir, name string) (files []File) {
	registry, err := cdi.NewCache(cdi.Options{Root: v.host.Dir(), SpecDirs: []string{dir},
		Extensions: v.specExts, DisableWatch: true, TrustAnyone: !v.checkHost || !v.isReadDir(dir),
	})
	if err != nil {
		return []File{{Name: name, Findings: diag.List{diag.Unreadable(name, err)}}}
	}
	defer registry.Close()
	for _, f := range registry.Snapshot().Files() {
		if len(f.Conflicts) == 0 {
			continue
		}
		var devices []string
		for i, c := range f.Conflicts {
			if i == maxConflicts {
				devices = append(devices, fmt.Sprintf("and %d more", len(f.Conflicts)-i))
				break
			}
			var others []string
			for _, file := range c.Files {
				if file != f.Path {
					others = append(others, path.Join(name, path.Base(file)))
				}
			}
			devices = append(devices, fmt.Sprintf("%s (in %s)", c.Name, strings.Join(others, ", ")))
		}
		file := path.Join(name, path.Base(f.Path))
		files = append(files, File{Name: file, Findings: diag.List{{File: file, Severity: diag.SeverityError,
			Field: "devices", Found: strings.Join(devices, ", "),
			Rule: "other files of the directory declare these devices, too, so that none of them counts; keep each in one " +
				"file"}}})
	}
	return files
}

// warnOfSymlink reports a symlink, which is not followed where such files are read.
func (v *Validator) warnOfSymlink(t text, what string) diag.List {
	if st, err := v.host.Lstat(t.hostPath); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return nil
	}
	return diag.List{{File: t.name, Severity: diag.SeverityWarning, Found: "a symlink",
		Rule: "must be a regular file, for no symlink is followed where " + what + " is read"}}
}

// checkMetadata checks device metadata of a resource claim in all versions that the file has.
func (v *Validator) checkMetadata(t text) (content string, found diag.List) {
	found = v.warnOfSymlink(t, "device metadata")
	all, err := devicemetadata.Validate(string(t.data), t.name, t.hostPath)
	if err != nil {
		return "", append(found, diag.InFile(t.name, err)...)
	}
	devices := 0
	for _, r := range all[0].Requests {
		devices += len(r.Devices)
	}
	var versions []string
	for _, m := range all {
		versions = append(versions, path.Base(m.Version))
	}
	return "metadata of " + diag.Count(devices, "device") + ", " + strings.Join(versions, " and "), found
}

func (v *Validator) checkDeviceInfo(t text) (content string, found diag.List) {
	found = v.warnOfSymlink(t, "device-info")
	info, err := deviceinfo.Parse(t.data, t.name)
	if err != nil {
		return "", append(found, diag.InFile(t.name, err)...)
	}
	return "device-info of type " + string(info.Type), append(found, diag.All("", info.Warnings).WithFile(t.name)...)
}

// checkConfig checks a configuration with its policy, as a node that reads it does.
func (v *Validator) checkConfig(t text) (content string, found diag.List) {
	cfg, err := config.Parse(t.data, t.name)
	if err != nil {
		return "", diag.InFile(t.name, err)
	}
	if t.hostPath != "" && v.checkHost {
		if _, err := config.Load(v.host, t.hostPath, config.Options{RequireOwner: true}); err != nil {
			fault := &diag.Diagnostic{File: t.name, Severity: diag.SeverityWarning,
				Rule: "cannot be read as the node's configuration: " + diag.ErrorText(err)}
			if t.hostPath == config.DefaultPath {
				fault = diag.Unreadable(t.name, err)
			}
			found = diag.List{fault}
		}
	}
	if _, err := cfg.CompilePolicy(""); err != nil {
		found = append(found, diag.InFile(t.name, err)...)
	} else {
		found = append(found, v.findUnreachableRules(cfg)...)
	}
	return diag.Count(len(cfg.Policy.Rules), "rule"), found
}
