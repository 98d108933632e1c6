// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"path"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/report/validate"
)

// checkNetworks checks the CNI configuration files of the node, with the parser of jackfield-cni. NetworkAttachmentDefinitions
// are in the cluster, and validate checks them.
func (d *doctor) checkNetworks() {
	dir := runtimeconfig.CNIConfDir(d.settings["containerd"], d.settings["cri-o"])
	own, faults, err := validate.CheckNetworks(d.Host, dir)
	d.reportUnread("networks", err)
	for i, f := range faults {
		if i == maxReported {
			d.report("networks", Error, "", "and %d more", len(faults)-maxReported)
			break
		}
		d.report("networks", Error, "correct it: `jackfield validate "+f.File+"`", "%s: %v", f.File, f.Err)
	}
	if own > 0 && len(faults) == 0 {
		d.reportOK("networks", "%s of jackfield-cni in %s", diag.Count(own, "network"), path.Clean(dir))
	}
}
