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

// validateCDI checks a CDI file as a node that reads it does; hostPath is "" for one that is no file.
func (v *validator) validateCDI(hostPath, shown string, data []byte) {
	if hostPath == "" {
		v.addFindings(diagnosticsInFile(shown, cdiregistry.Validate(data))...)
	} else {
		if ext := path.Ext(shown); ext != ".json" && ext != ".yaml" {
			v.addFindings(fileDiagnostic(shown, diag.SeverityWarning, "", "is not read under this name: CDI files are *.json and *.yaml, and what else cdi.extensions of the configuration has"))
		}
		v.addFindings(v.validateOnHost(hostPath, shown, func(checkHost, trustAnyone bool) (diag.List, error) {
			all, err := cdiregistry.ValidateFile(v.host, hostPath, cdiregistry.ValidateOptions{CheckHost: checkHost, TrustAnyone: trustAnyone})
			return diagnosticsInFile(shown, all), err
		})...)
	}
	v.addChecked(shown, countDevices(data))
}

// validateOnHost returns the diagnostics of a file. Where this host does not read the file, errors
// that the file alone does not have are warnings: they are about this host.
func (v *validator) validateOnHost(hostPath, shown string, validate func(checkHost, trustAnyone bool) (diag.List, error)) diag.List {
	found, err := validate(v.checkHost, v.trustsAnyone())
	if err == nil && v.checkHost && !v.isRead(hostPath) {
		var alone diag.List
		alone, err = validate(false, true)
		for i := range found {
			if !slices.ContainsFunc(alone, func(d *diag.Diagnostic) bool { return *d == *found[i] }) {
				found[i].Severity = diag.SeverityWarning
			}
		}
	}
	if err != nil {
		return diag.List{cannotRead(shown, err)}
	}
	return found
}

// countDevices says how many devices a valid CDI file declares.
func countDevices(data []byte) string {
	spec, _ := cdiregistry.Parse(data)
	if spec == nil {
		return "CDI"
	}
	return diag.Count(len(spec.Devices), "device")
}

// trustsAnyone reports whether the owners of files are not checked.
func (v *validator) trustsAnyone() bool { return isForeignTree(v.host) || !v.checkHost }

// addConflicts reports the files of a directory that declare the same devices: each is valid alone,
// and none of the devices can be used.
func (v *validator) addConflicts(hostPath, shown string) {
	trustAnyone := v.trustsAnyone() || !slices.Contains(v.readDirs, v.resolveDir(hostPath))
	registry, err := cdiregistry.New(v.host, []string{hostPath}, cdiregistry.Options{DisableWatch: true, TrustAnyone: trustAnyone})
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
func (v *validator) warnOfSymlink(hostPath, shown, what string) {
	if st, err := v.host.Lstat(hostPath); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		v.addFindings(fileDiagnostic(shown, diag.SeverityWarning, "a symlink", "want a regular file, for no symlink is followed where "+what+" is read"))
	}
}

// validateMetadata checks device metadata of a resource claim in all versions that the file has.
func (v *validator) validateMetadata(hostPath, shown string, data []byte) {
	v.warnOfSymlink(hostPath, shown, "device metadata")
	all, err := devicemetadata.Validate(string(data), shown, hostPath)
	if err != nil {
		v.addFindings(diagnosticsOf(shown, err)...)
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
	v.addChecked(shown, "metadata of "+diag.Count(devices, "device")+", "+strings.Join(versions, " and "))
}

func (v *validator) validateDeviceInfo(hostPath, shown string, data []byte) {
	v.warnOfSymlink(hostPath, shown, "device-info")
	info, err := deviceinfo.Parse(data, shown)
	if err != nil {
		v.addFindings(diagnosticsOf(shown, err)...)
		return
	}
	v.addFindings(diagnosticsInFile(shown, info.Warnings)...)
	v.addChecked(shown, "device-info of type "+string(info.Type))
}

// validateHooks checks a hooks.d file as a node that reads it does; hostPath is "" for one that is no
// file.
func (v *validator) validateHooks(hostPath, shown string, data []byte) {
	if hostPath == "" {
		_, problems := hooksd.Parse(data, shown)
		v.addFindings(hookDiagnostics(shown, problems)...)
	} else {
		v.addFindings(v.validateOnHost(hostPath, shown, func(checkHost, trustAnyone bool) (diag.List, error) {
			all, err := hooksd.ValidateFile(v.host, hostPath, hooksd.ValidateOptions{CheckHost: checkHost, TrustAnyone: trustAnyone})
			return hookDiagnostics(shown, all), err
		})...)
	}
	v.addChecked(shown, "1 hook")
}

// validateConfig checks a configuration with its policy, as a node that reads it does; hostPath is
// "" for one that is no file.
func (v *validator) validateConfig(hostPath, shown string, data []byte) {
	cfg, err := config.Parse(data, shown)
	if err != nil {
		v.addFindings(diagnosticsOf(shown, err)...)
		return
	}
	if hostPath != "" && v.checkHost && !isForeignTree(v.host) {
		if _, err := config.Load(v.host, hostPath, config.Options{}); err != nil {
			f := cannotRead(shown, err)
			if hostPath != config.DefaultPath {
				f.Severity = diag.SeverityWarning
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
	v.addChecked(shown, diag.Count(len(cfg.Policy.Rules), "rule"))
}
