// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// toldConflicts bounds the devices that one finding names.
const toldConflicts = 3

// cdi checks a CDI file, as a node would that reads it.
func (v *validator) cdi(hostPath, shown string, data []byte) {
	diags, err := cdiregistry.ValidateFile(v.host, hostPath, cdiregistry.ValidateOptions{CheckHost: v.checkHost, Trust: v.trust()})
	if err != nil {
		v.add(cannotRead(shown, err))
		return
	}
	if ext := path.Ext(shown); ext != ".json" && ext != ".yaml" {
		f := fileFinding(shown, severityWarning, "a name in "+ext, "one in .json or .yaml")
		f.text = "is not read under this name: CDI files are *.json and *.yaml, and what else cdi.extensions of the configuration has"
		v.add(f)
	}
	found := fromCDI(shown, diags)
	if v.checkHost && !v.isRead(hostPath) {
		alone, err := cdiregistry.ValidateFile(v.host, hostPath, cdiregistry.ValidateOptions{Trust: cdiregistry.TrustAnyone})
		if err != nil {
			v.add(cannotRead(shown, err))
			return
		}
		onlyWarnOfHost(found, fromCDI(shown, alone))
	}
	v.add(found...)
	v.checked(shown, countDevices(data))
}

// countDevices says how many devices a valid CDI file declares.
func countDevices(data []byte) string {
	spec, _ := new(cdiregistry.Validator).Parse(data)
	if spec == nil {
		return "CDI"
	}
	return count(len(spec.Devices), "device")
}

// trust is whose CDI files are believed.
func (v *validator) trust() cdiregistry.Trust {
	if notInUse(v.host) || !v.checkHost {
		return cdiregistry.TrustAnyone
	}
	return cdiregistry.TrustOwner
}

// conflicts says which files of a directory declare the same devices: each is right
// alone, and neither one's device is used.
func (v *validator) conflicts(hostPath, shown string) {
	trust := v.trust()
	if !slices.Contains(v.readDirs, v.resolved(hostPath)) {
		trust = cdiregistry.TrustAnyone
	}
	registry, err := cdiregistry.New(v.host, []string{hostPath}, cdiregistry.Options{DisableWatch: true, Trust: trust})
	if err != nil {
		v.add(cannotRead(shown, err))
		return
	}
	defer registry.Close()
	for _, f := range registry.Snapshot().Files() {
		var devices []string
		conflicts := conflictsIn(f.Err)
		for _, c := range conflicts[:min(len(conflicts), toldConflicts)] {
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
		found := fileFinding(path.Join(shown, path.Base(f.Path)), severityError, strings.Join(devices, ", "), "each device in one file of a directory")
		found.Key = "devices"
		found.text = "declares devices that other files of the directory declare, too, so that none of these counts: " + found.Found + "; keep each in one file"
		v.add(found)
	}
}
