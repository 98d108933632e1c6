// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"path"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/report/validate"
)

// checkNetworks checks the CNI configuration files of the node, with the parser of jackfield-cni.
// NetworkAttachmentDefinitions are in the cluster, and validate checks them.
func checkNetworks(_ context.Context, n *node) (found findings) {
	containerd, _ := n.settings("containerd")
	crio, _ := n.settings("cri-o")
	dir := runtimeconfig.CNIConfDir(containerd, crio)
	own, faults, err := validate.CheckNetworks(n.Host, dir)
	found.addUnread(err)
	for i, f := range faults {
		if i == maxReported {
			found.add(Error, "", "and %d more", len(faults)-maxReported)
			break
		}
		found.add(Error, "correct it: `jackfield validate "+f.File+"`", "%s: %v", f.File, f.Err)
	}
	pods := path.Join(path.Dir(n.cfg.Kubelet.PluginsDir), "pods")
	for _, file := range validate.DroppedKeys(n.Host, dir, pods) {
		found.add(Warning, "set clusterNetwork to the name of the network; of Multus' daemon, in its daemon-config.json",
			"%s: clusterNetwork is the path of a file: Multus 4.3 then drops the keys of jackfield-cni, and those below ipam",
			file)
	}
	if own > 0 && len(faults) == 0 {
		found.addOK("%s of jackfield-cni in %s", diag.Count(own, "network"), path.Clean(dir))
	}
	return found
}
