// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/devicemetadata"
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hooksd"
)

// maxConflicts bounds the devices that one diagnostic names.
const maxConflicts = 3

// validateCDI checks a CDI file as a node that reads it does.
func (v *validator) validateCDI(c content) {
	if c.hostPath != "" && !slices.Contains(v.specExts, path.Ext(c.shown)) {
		v.addFindings(fileDiagnostic(c.shown, diag.SeverityWarning, "", "is not read under this name: cdi.extensions of the configuration has "+strings.Join(v.specExts, ", ")))
	}
	v.validateOnHost(c, func(checkHost, trustAnyone bool) (diag.List, error) {
		if c.hostPath == "" {
			return cdiregistry.Validate(c.data), nil
		}
		return cdiregistry.ValidateFile(v.host, c.hostPath, cdiregistry.ValidateOptions{CheckHost: checkHost, TrustAnyone: trustAnyone})
	})
	spec, _ := cdiregistry.Parse(c.data)
	holds := "CDI"
	if spec != nil {
		holds = diag.Count(len(spec.Devices), "device")
	}
	v.addChecked(c.shown, holds)
}

// validateHooks checks a hooks.d file as a node that reads it does.
func (v *validator) validateHooks(c content) {
	v.validateOnHost(c, func(checkHost, trustAnyone bool) (diag.List, error) {
		if c.hostPath == "" {
			_, faults := hooksd.Parse(c.data, c.shown)
			return faults, nil
		}
		return hooksd.ValidateFile(v.host, c.hostPath, hooksd.Options{TrustAnyone: trustAnyone}, checkHost)
	})
	v.addChecked(c.shown, "1 hook")
}

// validateOnHost adds the diagnostics of a file. Where this host does not read the file, errors
// that the file alone does not have are warnings: they are about this host.
func (v *validator) validateOnHost(c content, validate func(checkHost, trustAnyone bool) (diag.List, error)) {
	all, err := validate(v.checkHost, v.trustsAnyone())
	found := diagnosticsInFile(c.shown, all)
	if err == nil && v.checkHost && c.hostPath != "" && !v.isRead(c.hostPath) {
		all, err = validate(false, true)
		alone := diagnosticsInFile(c.shown, all)
		for _, d := range found {
			if !slices.ContainsFunc(alone, func(a *diag.Diagnostic) bool { return *a == *d }) {
				d.Severity = diag.SeverityWarning
			}
		}
	}
	if err != nil {
		found = diag.List{cannotRead(c.shown, err)}
	}
	v.addFindings(found...)
}

// trustsAnyone reports whether the owners of files are not checked.
func (v *validator) trustsAnyone() bool { return isForeignTree(v.host) || !v.checkHost }

// addConflicts reports the files of a directory that declare the same devices: each is valid alone,
// and none of the devices can be used.
func (v *validator) addConflicts(hostPath, shown string) {
	trustAnyone := v.trustsAnyone() || !slices.Contains(v.readDirs, v.host.Canonical(hostPath))
	registry, err := cdiregistry.New(v.host, []string{hostPath}, cdiregistry.Options{Extensions: v.specExts, DisableWatch: true, TrustAnyone: trustAnyone})
	if err != nil {
		v.addFindings(cannotRead(shown, err))
		return
	}
	defer registry.Close()
	for _, f := range registry.Snapshot().Files() {
		var devices []string
		conflicts := conflictsOf(f.Err)
		for _, c := range conflicts[:min(len(conflicts), maxConflicts)] {
			others := slices.DeleteFunc(slices.Clone(c.Files), func(file string) bool { return file == f.Path })
			for i := range others {
				others[i] = path.Join(shown, path.Base(others[i]))
			}
			devices = append(devices, fmt.Sprintf("%s (in %s)", c.Name, strings.Join(others, ", ")))
		}
		if len(devices) == 0 {
			continue
		}
		if more := len(conflicts) - len(devices); more > 0 {
			devices = append(devices, fmt.Sprintf("and %d more", more))
		}
		found := fileDiagnostic(path.Join(shown, path.Base(f.Path)), diag.SeverityError, strings.Join(devices, ", "),
			"other files of the directory declare these devices, too, so that none of them counts; keep each in one file")
		found.Field = "devices"
		v.addFindings(found)
	}
}

// warnOfSymlink reports a symlink, which is not followed where such files are read.
func (v *validator) warnOfSymlink(c content, what string) {
	if st, err := v.host.Lstat(c.hostPath); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		v.addFindings(fileDiagnostic(c.shown, diag.SeverityWarning, "a symlink", "want a regular file, for no symlink is followed where "+what+" is read"))
	}
}

// validateMetadata checks device metadata of a resource claim in all versions that the file has.
func (v *validator) validateMetadata(c content) {
	v.warnOfSymlink(c, "device metadata")
	all, err := devicemetadata.Validate(string(c.data), c.shown, c.hostPath)
	if err != nil {
		v.addFindings(diagnosticsOf(c.shown, err)...)
		return
	}
	devices := 0
	for _, r := range all[0].Requests {
		devices += len(r.Devices)
	}
	var versions []string
	for _, m := range all {
		versions = append(versions, path.Base(m.Version))
	}
	v.addChecked(c.shown, "metadata of "+diag.Count(devices, "device")+", "+strings.Join(versions, " and "))
}

func (v *validator) validateDeviceInfo(c content) {
	v.warnOfSymlink(c, "device-info")
	info, err := deviceinfo.Parse(c.data, c.shown)
	if err != nil {
		v.addFindings(diagnosticsOf(c.shown, err)...)
		return
	}
	v.addFindings(diagnosticsInFile(c.shown, info.Warnings)...)
	v.addChecked(c.shown, "device-info of type "+string(info.Type))
}

// validateConfig checks a configuration with its policy, as a node that reads it does.
func (v *validator) validateConfig(c content) {
	cfg, err := config.Parse(c.data, c.shown)
	if err != nil {
		v.addFindings(diagnosticsOf(c.shown, err)...)
		return
	}
	if c.hostPath != "" && v.checkHost && !isForeignTree(v.host) {
		if _, err := config.Load(v.host, c.hostPath, config.Options{}); err != nil {
			f := cannotRead(c.shown, err)
			if c.hostPath != config.DefaultPath {
				f.Severity, f.Kind = diag.SeverityWarning, nil
				f.Rule = "cannot be read as the node's configuration: " + diag.ErrorText(err)
			}
			v.addFindings(f)
		}
	}
	if _, err := cfg.CompilePolicy(""); err != nil {
		v.addFindings(diagnosticsOf(cfg.File(), err)...)
	} else {
		v.addFindings(v.unreachableRules(cfg)...)
	}
	v.addChecked(c.shown, diag.Count(len(cfg.Policy.Rules), "rule"))
}
